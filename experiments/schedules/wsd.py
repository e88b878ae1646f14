"""Warmup, stable, decay (Hu et al. 2024, arXiv:2404.06395), here with a linear decay (Hägele et al.
2024, arXiv:2405.18392)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from experiments.optimizers.base import Space
from experiments.schedules.base import Ranges, Schedule
from experiments.search.domains import Domain
from experiments.search.space import Value


class WarmupStableDecay(Schedule):
    """1 for S steps, then 1 - (1-α) (t-S)/T for T steps, then α: S ``stable_steps``, T
    ``decay_steps``, α ``end_factor``.

    The warmup is the one that every schedule has.
    """

    name = "wsd"
    space: ClassVar[Space] = {"stable": {"linear": [0.1, 0.8]}, "decay": 0.2, "end_factor": 0.0}
    ranges: ClassVar[Ranges] = {"end_factor": Domain(low=0)}

    def acts_from(self, metaparameters: Mapping[str, Value]) -> int:
        warmup = int(metaparameters.get("warmup_steps", 0))
        return warmup + int(metaparameters["stable_steps"]) + 1

    def shape(
        self, step: int, stable_steps: int, decay_steps: int, end_factor: float = 0.0
    ) -> float:
        progress = min(max(step - stable_steps, 0) / decay_steps, 1.0)
        return 1 - (1 - end_factor) * progress
