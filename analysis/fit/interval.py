"""A quantity with its interval, in its own units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

QUANTITIES = (
    "perfect_scaling_until",
    "maximal_parallelism_from",
    "critical_batch_size",
    "min_steps",
    "min_examples",
)
"""The five quantities of a curve, in the order of ``regimes --json``."""
COLUMNS = tuple(QUANTITIES[place] for place in (0, 2, 1, 3, 4))
"""The quantities in the order of tables: the batch sizes as they lie along a curve."""
BATCH_SIZES = QUANTITIES[:3]
"""The quantities that are batch sizes, and so lie among the tested ones."""
BY_EXAMPLES = ("perfect_scaling_until", "min_examples")
"""Quantities that rest on examples to target being B·S."""
SLOPES = ("first", "last", "half")
"""The slopes of a curve that are given: d log S / d log B between its first two batch sizes and
between its last two, and the batch size at which it passes -1/2."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A quantity in its own units: batch sizes and min_examples in examples, min_steps in steps.

    ``value`` is None where the quantity is unknown or bounded alone, ``low`` and ``high`` where
    that end is open.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of_logs(cls, *logs: float) -> Interval:
        """Of natural logs of value, low and high; what is not finite is None."""
        value, low, high = (float(np.exp(x)) if np.isfinite(x) else None for x in logs)
        return cls(value=value, low=low, high=high)

    @property
    def ends(self) -> tuple[float | None, float | None, float | None]:
        """Value, low and high."""
        return self.value, self.low, self.high

    @property
    def nearest(self) -> float | None:
        """The value; else the bound that is known."""
        return next((end for end in self.ends if end is not None), None)

    @property
    def reached(self) -> bool:
        """Both ends are given: the regime was seen, not merely bounded."""
        return self.low is not None and self.high is not None

    def holds(self, value: float) -> bool:
        return not (
            (self.low is not None and value < self.low)
            or (self.high is not None and value > self.high)
        )

    def to_dict(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}
