"""Exponential decay: torch's ExponentialLR, by the factor that it comes to."""

from __future__ import annotations

from typing import ClassVar

from experiments.optimizers.base import Space
from experiments.schedules.base import Ranges, Schedule
from experiments.search.domains import Domain


class Exponential(Schedule):
    """α^(t/T) for t <= T, then α: T ``decay_steps``, α ``end_factor``; torch's γ is α^(1/T)."""

    name = "exponential"
    decays_after_warmup = True
    space: ClassVar[Space] = {"decay": {"linear": [0.5, 1]}, "end_factor": 0.01}
    ranges: ClassVar[Ranges] = {"end_factor": Domain(low=0, high=1, above=True, closed=True)}

    def shape(self, step: int, decay_steps: int, end_factor: float = 0.01) -> float:
        return float(end_factor ** min(step / decay_steps, 1.0))
