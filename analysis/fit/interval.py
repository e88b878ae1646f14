"""A quantity with its interval, in its own units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from results.targets.quantities import QUANTITIES as QUANTITIES

COLUMNS = tuple(QUANTITIES[place] for place in (0, 2, 1, 3, 4))
"""The quantities in the order of tables: the batch sizes as they lie along a curve."""
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

    @classmethod
    def at_edge(cls, end: float, tested: Sequence[float], *, smallest: bool) -> Interval:
        """The bound of an optimum whose best tested batch size is the smallest or the largest: a
        curve is seen to turn only between two tested batch sizes.

        Args:
            end: the inner end of the optimum's interval, infinite where it is open.
            tested: the batch sizes, two at least, in ascending order.
            smallest: the best is the smallest one; else the largest.
        """
        if smallest:
            high = max(end, float(tested[1]))
            return cls(high=high if high <= tested[-1] else None)
        low = min(end, float(tested[-2]))
        return cls(low=low if low >= tested[0] else None)

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

    @property
    def is_open(self) -> bool:
        """Neither end is given: nothing is known."""
        return self.low is None and self.high is None

    def holds(self, value: float) -> bool:
        return not (
            (self.low is not None and value < self.low)
            or (self.high is not None and value > self.high)
        )

    def to_dict(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}

    def columns(self, name: str) -> dict[str, float | None]:
        """As three columns of a table: ``name``, ``name_low`` and ``name_high``."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def bounded(best: Interval, sizes: NDArray[np.float64], steps: NDArray[np.float64]) -> Interval:
    """``best``, the batch size of fewest examples, of points (n,): a bound where the smallest or
    the largest batch size took the fewest (``Interval.at_edge``)."""
    tested = np.unique(sizes)
    at = int(np.argmin([np.log(size * steps[sizes == size]).mean() for size in tested]))
    if 0 < at < len(tested) - 1:
        return best
    end = best.high if at == 0 else best.low
    return Interval() if end is None else Interval.at_edge(end, list(tested), smallest=at == 0)
