"""The learning rate as it is."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.schedules.base import Schedule
from experiments.search.space import Value


class Constant(Schedule):
    """1, after warmup."""

    name = "constant"

    def shape(self, step: int) -> float:
        return 1.0

    def is_constant(self, metaparameters: Mapping[str, Value]) -> bool:
        return not int(metaparameters.get("warmup_steps", 0))
