"""Where a curve's regimes lie over its batch sizes, as figures and the report draw them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.curves.curve import Curve
from analysis.fit.regimes import Interval, Regimes


@dataclass(frozen=True)
class RegimeSpan:
    """A regime over batch sizes; ``sure`` if it was reached, else it is merely bounded."""

    regime: int
    low: float
    high: float
    sure: bool


def stretches(found: Regimes) -> list[RegimeSpan]:
    """The regimes of a curve over the batch sizes that reached the target; none of no width."""
    first, last = map(float, found.fitted_over)
    perfect, maximal = found.perfect_scaling_until, found.maximal_parallelism_from
    end, start = _at(perfect, first), _at(maximal, last)
    all_ = [
        RegimeSpan(0, first, end, perfect.reached),
        RegimeSpan(1, end, start, _apart(perfect, maximal)),
        RegimeSpan(2, start, last, maximal.reached),
    ]
    return [one for one in all_ if one.high > one.low * (1 + 1e-9)]


def _apart(perfect: Interval, maximal: Interval) -> bool:
    """Whether batch sizes of neither regime lie between the two, whatever else is open."""
    if perfect.high is None or maximal.low is None:
        return False
    return perfect.high <= maximal.low


def _at(end: Interval, otherwise: float) -> float:
    """Where to draw an end of a regime: its estimate, or the bound that is known."""
    return next((x for x in (end.value, end.low, end.high) if x is not None), otherwise)


def perfect_examples(curve: Curve, found: Regimes | None) -> float | None:
    """Examples to target under perfect scaling: the mean of log B·S over its range.

    A line through the smallest batch size would tilt with one lucky point. None where no range of
    perfect scaling is known.
    """
    if found is None:
        return None
    until = found.perfect_scaling_until
    end = until.value if until.value is not None else until.low
    if end is None:
        return None
    sizes, steps = curve.to_fit()
    within = sizes <= end * (1 + 1e-9)
    if not within.any():
        return None
    return float(np.exp(np.log(sizes[within] * steps[within]).mean()))
