"""The values that a metaparameter may have, by its name.

What an experiment file says is checked against them, and a range is never enlarged beyond them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Domain:
    """From ``low``, to below ``high``, or to ``high`` itself where it is ``closed``."""

    low: float = -math.inf
    high: float = math.inf
    closed: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value and (value <= self.high if self.closed else value < self.high)

    def __str__(self) -> str:
        """As in ``[0, 1)``."""
        return f"[{self.low:g}, {self.high:g}{']' if self.closed else ')'}"


_SHARE = Domain(low=0, high=1, closed=True)
_BELOW_ONE = Domain(low=0, high=1)
_MOST_STEPS = 1e12
"""As many as a budget may have."""
DOMAINS = {
    "learning_rate": Domain(low=0),
    "momentum": _BELOW_ONE,
    "beta1": _BELOW_ONE,
    "beta2": _BELOW_ONE,
    "epsilon": Domain(low=0),
    "weight_decay": Domain(low=0),
    "end_factor": Domain(low=0),
    "decay": _SHARE,
    "decay_steps": Domain(low=1, high=_MOST_STEPS, closed=True),
    "warmup": _SHARE,
    "warmup_steps": Domain(low=0, high=_MOST_STEPS, closed=True),
    "label_smoothing": _BELOW_ONE,
    "dropout": _BELOW_ONE,
}


def domain_of(name: str, low: float, *, whole: bool = False) -> Domain:
    """The domain of ``name``; of an unknown one, what its range's lower bound ``low`` suggests.

    What is not negative so far stays so, and a whole number that is at least 1 does too.
    """
    if name in DOMAINS:
        return DOMAINS[name]
    if low < 0:
        return Domain()
    return Domain(low=1 if whole and low >= 1 else 0)
