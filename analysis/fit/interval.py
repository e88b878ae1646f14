"""A quantity with its interval, in its own units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A quantity in its own units: batch sizes and min_examples in examples, min_steps in steps.

    ``value`` is None where it is unknown or lies outside the tested batch sizes, ``low`` and
    ``high`` where that end is open.
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
