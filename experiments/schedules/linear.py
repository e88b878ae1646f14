"""Linear decay, the paper's (Shallue et al. 2019, appendix)."""

from __future__ import annotations

from typing import ClassVar

from experiments.optimizers.base import Space
from experiments.schedules.base import Ranges, Schedule
from experiments.search.domains import Domain


class Linear(Schedule):
    """1 - (1-α) t/T for t <= T, then α: T is ``decay_steps``, α ``end_factor``."""

    name = "linear"
    decays_after_warmup = True
    space: ClassVar[Space] = {"decay": {"linear": [0.5, 1]}, "end_factor": 0.01}
    ranges: ClassVar[Ranges] = {"end_factor": Domain(low=0)}

    def shape(self, step: int, decay_steps: int, end_factor: float = 0.0) -> float:
        progress = min(step / decay_steps, 1.0)
        return 1 - (1 - end_factor) * progress
