"""The schedules by name: a new one is a file beside this one and an entry here; a user's class
needs neither."""

from __future__ import annotations

from experiments.errors import ExperimentError, nearest
from experiments.schedules.base import WARMUP, Schedule
from experiments.schedules.constant import Constant
from experiments.schedules.cosine import Cosine
from experiments.schedules.exponential import Exponential
from experiments.schedules.linear import Linear
from experiments.schedules.step import Step
from experiments.user_classes import load, split
from results.optimizers import class_name

_KNOWN: dict[str, type[Schedule]] = {
    kind.name: kind for kind in (Constant, Linear, Cosine, Step, Exponential)
}


def names() -> list[str]:
    """The registered names, without those of users' files."""
    return list(_KNOWN)


def get(text: str, base: str | None = None) -> Schedule:
    """The schedule of a name, perhaps with what it is to be called: ``wsd.py:WSD as wsd``.

    Args:
        text: a registered name, or ``file.py:Class``; ``as`` and a display name may follow.
        base: folder that a relative file starts from.

    Raises:
        ExperimentError: no such schedule, or what is named is none.
    """
    name, display_name = split(text)
    schedule = _load(name, base)
    schedule.display_name = display_name
    return schedule


def label(text: str) -> str:
    """What the schedule that ``get`` makes of ``text`` is called, without loading it."""
    name, display_name = split(text)
    return display_name or class_name(name)


def _load(name: str, base: str | None) -> Schedule:
    if name in _KNOWN:
        return _KNOWN[name]()
    if ":" not in name:
        raise ExperimentError(f"unknown schedule {name!r}", hint=nearest(name, _KNOWN))
    kind = load("schedule", name, base, Schedule)
    if not (isinstance(kind, type) and issubclass(kind, Schedule)) or kind is Schedule:
        raise ExperimentError(
            f"schedule {name!r} is not a class of batchscale.Schedule",
            hint="subclass batchscale.Schedule; its shape(step, ...) returns the factor",
        )
    if kind.shape is Schedule.shape:
        raise ExperimentError(
            f"schedule {name!r} has no shape",
            hint="define shape(self, step, ...): the learning rate's factor at that step",
        )
    schedule = kind()
    schedule.name = name
    taken = sorted({*WARMUP} & {*schedule.required, *schedule.defaults})
    if taken:
        raise ExperimentError(
            f"schedule {name!r}: shape has an argument {taken[0]}",
            hint="every schedule has a warmup already, before its shape begins: leave it out",
        )
    return schedule
