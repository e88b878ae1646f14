"""Decay in steps: torch's MultiStepLR with equally spaced milestones (StepLR up to the last)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from experiments.optimizers.base import Space
from experiments.schedules.base import Ranges, Schedule
from experiments.search.domains import Domain
from experiments.search.space import Value

_MOST_DROPS = 1000


class StepDecay(Schedule):
    """γ^k after k drops, the k-th at step k T/n (rounded up): T is ``decay_steps``, n ``drops``.

    ``gamma`` is torch's, and T/n its ``step_size``; after the last drop, at T, the rate stays.
    """

    name = "step"
    space: ClassVar[Space] = {"decay": {"linear": [0.5, 1]}, "drops": 2, "gamma": 0.1}
    ranges: ClassVar[Ranges] = {
        "drops": Domain(low=1, high=_MOST_DROPS, closed=True, whole=True),
        "gamma": Domain(low=0, high=1, closed=True),
    }

    def acts_from(self, metaparameters: Mapping[str, Value]) -> int:
        drops = int(metaparameters.get("drops", self.defaults["drops"]))
        first = -(-int(metaparameters["decay_steps"]) // drops)
        return int(metaparameters.get("warmup_steps", 0)) + first

    def shape(self, step: int, decay_steps: int, drops: int = 2, gamma: float = 0.1) -> float:
        done = min(step, decay_steps) * int(drops) // decay_steps
        return float(gamma**done)
