"""How one model spreads over the ranks of a worker group: the packaged layouts, and the user's."""

from experiments.errors import ExperimentError
from experiments.parallel.base import ForwardPass, ParallelLayout
from experiments.parallel.composed import Composed
from experiments.parallel.dimension import Dimension
from experiments.parallel.ranks import SOLO, Ranks, TorchRanks
from experiments.plan import Layout
from experiments.registry import Registry

__all__ = [
    "DIMENSIONS",
    "LAYOUTS",
    "SOLO",
    "Dimension",
    "ForwardPass",
    "ParallelLayout",
    "Ranks",
    "TorchRanks",
    "get",
    "names",
    "of",
    "summaries",
]


def _from_class(name: str, kind: type[ParallelLayout]) -> ParallelLayout:
    if missing := sorted(kind.__abstractmethods__):
        raise ExperimentError(
            f"layout {name!r} does not define {' and '.join(missing)}",
            hint="batchscale.ParallelLayout says what each method does",
        )
    layout = kind()
    layout.name = name
    return layout


LAYOUTS = Registry(
    "layout",
    __name__,
    ParallelLayout,  # type: ignore[type-abstract]
    user_base=("batchscale.ParallelLayout", ParallelLayout),
    user_contract="it defines reduce_gradients and all_reduce",
    adopt=_from_class,
)
DIMENSIONS = Registry(
    "dimension",
    __name__,
    Dimension,  # type: ignore[type-abstract]
    user_base=("experiments.parallel.Dimension", Dimension),
    user_contract="it defines apply",
)
get, names = LAYOUTS.get, LAYOUTS.names


def of(layout: Layout, base: str | None = None) -> ParallelLayout:
    """The layout of a study, before it joins its ranks.

    Args:
        base: folder that a relative file starts from.

    Raises:
        ExperimentError: there is no such layout, or the class cannot be one.
    """
    if not layout.dimensions:
        return get(layout.name or "data", base)
    sizes, packaged = dict(layout.dimensions), DIMENSIONS.packaged
    return Composed(sizes, [packaged[name].of(layout) for name in sizes if name in packaged])


def summaries() -> dict[str, str]:
    """One line for each layout and each dimension."""
    dimensions = sorted(DIMENSIONS.packaged.values(), key=lambda each: each.order)
    return {
        **{name: kind.summary for name, kind in LAYOUTS.packaged.items()},
        **{kind.name: kind.summary for kind in dimensions},
    }
