"""Cyclical rates, triangular (Smith 2017, arXiv:1506.01186): torch's CyclicLR."""

from __future__ import annotations

from typing import ClassVar

from experiments.optimizers.base import Space
from experiments.schedules.base import Ranges, Schedule


class Cyclical(Schedule):
    """b + (1-b) γ^c (1 - |2 t/T - 2c - 1|) in cycle c = ⌊t/T⌋, without end: T ``cycle_steps``
    up and down, b ``base_factor``, γ ``gamma``.

    The learning rate is torch's ``max_lr``, and b torch's ``base_lr`` over it; γ = 1 is its mode
    ``triangular``, γ = ½ its ``triangular2``. The momentum is not cycled.
    """

    name = "cyclical"
    space: ClassVar[Space] = {"cycle": {"log": [0.05, 0.5]}, "base_factor": 0.1, "gamma": 1.0}
    ranges: ClassVar[Ranges] = {"base_factor": (0, 1), "gamma": (0, 1)}

    def shape(
        self, step: int, cycle_steps: int, base_factor: float = 0.1, gamma: float = 1.0
    ) -> float:
        cycle, place = divmod(step, cycle_steps)
        rise = 1 - abs(2 * place / cycle_steps - 1)
        return float(base_factor + (1 - base_factor) * gamma**cycle * rise)
