"""The layouts by name: a new one is a file beside this one and an entry here; a user's class needs
neither."""

from __future__ import annotations

from experiments.errors import ExperimentError, nearest
from experiments.parallel.base import ParallelLayout
from experiments.parallel.data import DataParallel
from experiments.user_classes import load

_LAYOUTS: dict[str, type[ParallelLayout]] = {kind.name: kind for kind in (DataParallel,)}


def names() -> list[str]:
    """The registered names, without those of users' files."""
    return list(_LAYOUTS)


def get(name: str, base: str | None = None) -> type[ParallelLayout]:
    """The layout of a name.

    Args:
        name: a registered name, or ``file.py:Class``.
        base: folder that a relative file starts from.

    Raises:
        ExperimentError: no such layout, or what is named is none.
    """
    if name in _LAYOUTS:
        return _LAYOUTS[name]
    if ":" not in name:
        raise ExperimentError(f"unknown layout {name!r}", hint=nearest(name, _LAYOUTS))
    kind = load("layout", name, base, ParallelLayout)
    if not (isinstance(kind, type) and issubclass(kind, ParallelLayout)):
        raise ExperimentError(
            f"layout {name!r} is not a class of batchscale.ParallelLayout",
            hint="subclass batchscale.ParallelLayout; define reduce_gradients and all_reduce",
        )
    if missing := sorted(kind.__abstractmethods__):
        raise ExperimentError(
            f"layout {name!r} does not define {' and '.join(missing)}",
            hint="see batchscale.ParallelLayout for what each method does",
        )
    return kind
