"""SGDR, cosine decay with warm restarts (Loshchilov & Hutter 2017, arXiv:1608.03983): torch's
CosineAnnealingWarmRestarts."""

from __future__ import annotations

import math
from typing import ClassVar

from experiments.optimizers.base import Space
from experiments.schedules.base import Ranges, Schedule
from experiments.search.domains import Domain

_MOST_GROWTH = 1000


class CosineWarmRestarts(Schedule):
    """α + (1-α) (1 + cos(π t_i/T_i)) / 2, t_i steps into cycle i, without end. The first cycle has
    T ``cycle_steps``, each further one m times as many: m ``cycle_growth``, α ``end_factor``.

    T is torch's ``T_0``, m its ``T_mult``, and α its ``eta_min`` over the learning rate.
    """

    name = "sgdr"
    space: ClassVar[Space] = {"cycle": {"log": [0.05, 1]}, "cycle_growth": 2, "end_factor": 0.0}
    ranges: ClassVar[Ranges] = {
        "cycle_growth": Domain(low=1, high=_MOST_GROWTH, closed=True, whole=True),
        "end_factor": Domain(low=0),
    }

    def shape(
        self, step: int, cycle_steps: int, cycle_growth: int = 2, end_factor: float = 0.0
    ) -> float:
        growth = int(cycle_growth)
        place, length = (step % cycle_steps, cycle_steps) if growth == 1 else (step, cycle_steps)
        while place >= length:
            place, length = place - length, length * growth
        return end_factor + (1 - end_factor) * 0.5 * (1 + math.cos(math.pi * place / length))
