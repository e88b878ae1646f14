"""One cycle (Smith & Topin 2018, arXiv:1708.07120): torch's OneCycleLR in its two cosine phases."""

from __future__ import annotations

import math
from typing import ClassVar

from experiments.optimizers.base import Space
from experiments.schedules.base import Ranges, Schedule
from experiments.search.domains import Domain


class Onecycle(Schedule):
    """From 1/d to 1 over the first share r of T steps, then to 1/(d f), each half a cosine; it
    stays there: T ``cycle_steps``, r ``pct_start``, d ``div_factor``, f ``final_div_factor``.

    The learning rate is torch's ``max_lr``. The momentum is not cycled.
    """

    name = "one-cycle"
    space: ClassVar[Space] = {
        "cycle": {"linear": [0.5, 1]},
        "pct_start": 0.3,
        "div_factor": 25.0,
        "final_div_factor": 1e4,
    }
    ranges: ClassVar[Ranges] = {
        "pct_start": (0, 1),
        "div_factor": Domain(low=1),
        "final_div_factor": Domain(low=1),
    }

    def shape(
        self,
        step: int,
        cycle_steps: int,
        pct_start: float = 0.3,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
    ) -> float:
        last, peak = cycle_steps - 1, pct_start * cycle_steps - 1
        start = 1 / div_factor
        at = min(step, last)
        if at <= peak:
            return _cosine(start, 1.0, at / peak if peak else 1.0)
        return _cosine(1.0, start / final_div_factor, (at - peak) / (last - peak))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
