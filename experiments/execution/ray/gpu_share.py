"""How many packs train on one GPU at once: as many as its memory holds, by measurement.

The pack that is expected to take the most memory of each shape (the largest batch) trains two steps
and is evaluated alone on a whole GPU. Memory alone decides: packs that share a GPU share its speed,
which is no loss while none of them uses all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from experiments.errors import ExperimentError
from experiments.plan import Pack
from results.counts import count

MOST_PACKS = 16
"""Packs a GPU at the most: each is a process, with a CUDA context of its own."""
_USED = 0.9
"""The part of a GPU's memory that packs may fill: allocators leave gaps."""
_STEPS = 2
"""Optimizers make their state at the first step; the second one holds all at once."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What a pack took of a GPU's memory."""

    peak: int
    """Most bytes of its process, the CUDA context included."""
    total: int
    """Bytes of the GPU."""

    @property
    def packs(self) -> int:
        """Packs like this one that the GPU holds; at least one."""
        return max(1, min(MOST_PACKS, math.floor(_USED * self.total / max(1, self.peak))))


Measure = Callable[[Pack], Memory]


def share(measured: Iterable[Memory]) -> float:
    """The part of a GPU that each pack gets, so that the largest of the measured ones fit."""
    packs = min((memory.packs for memory in measured), default=1)
    return math.floor(10_000 / packs) / 10_000  # Ray counts in ten-thousandths


def sentence(measured: Sequence[Memory]) -> str:
    """What was measured and decided, for a note."""
    largest = min(measured, key=lambda memory: memory.packs)
    return (
        f"gpus: auto: {count(largest.packs, 'pack')} on each GPU; the largest takes "
        f"{_gibibytes(largest.peak)} of {_gibibytes(largest.total)}."
    )


def _gibibytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def measure(pack: Pack) -> Memory:
    """Train a pack for two steps and evaluate it, alone on the first GPU of this process.

    Raises:
        ExperimentError: this process has no GPU.
    """
    import torch

    from experiments.engines import make_engine
    from experiments.training.study_context import StudyContext

    if not torch.cuda.is_available():
        raise ExperimentError("gpus: auto: torch finds no GPU to measure memory on")
    before, total = torch.cuda.mem_get_info()
    context = StudyContext.load(pack.study, "cuda")
    engine = make_engine(pack.engine, context, pack.trials)
    engine.advance(_STEPS)
    for split in context.evaluated:
        engine.evaluate(split)
    torch.cuda.synchronize()
    after, _ = torch.cuda.mem_get_info()
    # What torch has given back meanwhile counts too; the rest of the difference is the context.
    given_back = torch.cuda.max_memory_reserved() - torch.cuda.memory_reserved()
    return Memory(peak=before - after + given_back, total=total)
