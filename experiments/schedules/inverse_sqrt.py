"""Decay with the inverse square root of the step, the Transformer's (Vaswani et al. 2017, §5.3)."""

from __future__ import annotations

from typing import ClassVar

from experiments.optimizers.base import Space
from experiments.schedules.base import Schedule


class InverseSqrt(Schedule):
    """sqrt(T / (T + t)), without end: T is ``decay_steps``.

    With as many warmup steps as T this is Vaswani's min(n^-½, n T^(-3/2)) over its largest value,
    where n counts from 1, and the decay begins one step later.
    """

    name = "inverse-sqrt"
    space: ClassVar[Space] = {"decay": {"log": [0.01, 1]}}

    def shape(self, step: int, decay_steps: int) -> float:
        return float((decay_steps / (decay_steps + step)) ** 0.5)
