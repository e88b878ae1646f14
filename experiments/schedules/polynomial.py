"""Polynomial decay: torch's PolynomialLR, which ends at 0."""

from __future__ import annotations

from typing import ClassVar

from experiments.optimizers.base import Space
from experiments.schedules.base import Ranges, Schedule
from experiments.search.domains import Domain


class Polynomial(Schedule):
    """α + (1-α) (1 - t/T)^p for t <= T, then α: T ``decay_steps``, p ``power``, α ``end_factor``.

    p = 1 is the linear schedule, p = 2 that of LARS on ResNet-50 (You et al. 2017).
    """

    name = "polynomial"
    decays_after_warmup = True
    space: ClassVar[Space] = {"decay": {"linear": [0.5, 1]}, "power": 2.0, "end_factor": 0.0}
    ranges: ClassVar[Ranges] = {
        "power": Domain(low=0, high=100, above=True, closed=True),
        "end_factor": Domain(low=0),
    }

    def shape(
        self, step: int, decay_steps: int, power: float = 2.0, end_factor: float = 0.0
    ) -> float:
        left = 1 - min(step / decay_steps, 1.0)
        return float(end_factor + (1 - end_factor) * left**power)
