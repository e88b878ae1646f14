"""How one model spreads over the ranks of a worker group: the packaged layouts, and the user's."""

from experiments.errors import ExperimentError
from experiments.parallel.base import ParallelLayout
from experiments.parallel.ranks import SOLO, Ranks, TorchRanks
from experiments.registry import Registry

__all__ = ["LAYOUTS", "SOLO", "ParallelLayout", "Ranks", "TorchRanks", "get", "names"]


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
get, names = LAYOUTS.get, LAYOUTS.names
