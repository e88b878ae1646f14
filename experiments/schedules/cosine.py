"""Cosine decay (Loshchilov & Hutter 2017), without restarts: torch's CosineAnnealingLR."""

from __future__ import annotations

import math
from typing import ClassVar

from experiments.optimizers.base import Space
from experiments.schedules.base import Ranges, Schedule
from experiments.search.domains import Domain


class Cosine(Schedule):
    """α + (1-α) (1 + cos(π t/T)) / 2 for t <= T, then α: T ``decay_steps``, α ``end_factor``."""

    name = "cosine"
    decays_after_warmup = True
    space: ClassVar[Space] = {"decay": {"linear": [0.5, 1]}, "end_factor": 0.0}
    ranges: ClassVar[Ranges] = {"end_factor": Domain(low=0)}

    def shape(self, step: int, decay_steps: int, end_factor: float = 0.0) -> float:
        progress = min(step / decay_steps, 1.0)
        return end_factor + (1 - end_factor) * 0.5 * (1 + math.cos(math.pi * progress))
