"""Lines beside a curve's points in figures and the report: the spans of its regimes, the line of
perfect scaling, and learning-rate rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.curves.curve import Curve
from analysis.fit.convex import Array
from analysis.fit.regimes import Regimes

LINEAR, SQUARE_ROOT = 1.0, 0.5
"""Powers of the batch size that the two learning-rate rules are."""


@dataclass(frozen=True)
class RegimeSpan:
    """A regime over batch sizes; ``sure`` if it was reached, else it is merely bounded."""

    regime: int
    low: float
    high: float
    sure: bool


def regime_spans(regimes: Regimes) -> list[RegimeSpan]:
    """The regimes of a curve over the batch sizes that reached the target; none of no width.
    Perfect scaling begins at the best batch size of a curve with a small-batch penalty."""
    first, last = map(float, regimes.fitted_over)
    perfect, maximal = regimes.perfect_scaling_until, regimes.maximal_parallelism_from
    end = first if perfect.nearest is None else perfect.nearest
    start = last if maximal.nearest is None else maximal.nearest
    # Whether batch sizes of neither regime lie between the two, whatever else is open.
    apart = perfect.high is not None and maximal.low is not None and perfect.high <= maximal.low
    best = regimes.best_batch_size
    begin = first if best is None else min(best.value or best.low or first, end)
    spans = [
        RegimeSpan(0, begin, end, perfect.reached),
        RegimeSpan(1, end, start, apart),
        RegimeSpan(2, start, last, maximal.reached),
    ]
    if regimes.grows:  # where perfect scaling ends, and diminishing returns begin, is not known
        spans = spans[2:]
    return [span for span in spans if span.high > span.low * (1 + 1e-9)]


def perfect_examples(curve: Curve, regimes: Regimes | None) -> float | None:
    """Examples to target under perfect scaling: the mean of log B·S over its range.

    A line through the smallest batch size would depend on the luck of one point. None where no
    range of perfect scaling is known. With a small-batch penalty: the fewest fitted examples.
    """
    if regimes is None:
        return None
    if regimes.best_batch_size is not None and regimes.min_examples.value is not None:
        return regimes.min_examples.value
    until = regimes.perfect_scaling_until
    end = until.value if until.value is not None else until.low
    if end is None:
        return None
    sizes, steps = curve.to_fit()
    within = sizes <= end * (1 + 1e-9)
    if not within.any():
        return None
    return float(np.exp(np.log(sizes[within] * steps[within]).mean()))


def best_rates(curve: Curve) -> tuple[Array, Array]:
    """Batch sizes and best learning rates, (n,) each."""
    pairs = [(point.batch_size, point.rates[0]) for point in curve.points if point.rates]
    columns = np.array(pairs, dtype=float).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def level(curve: Curve, regimes: Regimes | None, power: float) -> float:
    """The learning rate at batch size 1 of a rule of this power; NaN without any rate.

    The mean of log rate - power · log batch size, over the batch sizes up to the critical one (all
    where none is known, or fewer than two lie there).
    """
    sizes, rates = best_rates(curve)
    if not len(sizes):
        return float("nan")
    critical = regimes.critical_batch_size.value if regimes else None
    within = np.full(len(sizes), True) if critical is None else sizes <= critical
    if within.sum() < 2:
        within = np.full(len(sizes), True)
    return float(np.exp((np.log(rates) - power * np.log(sizes))[within].mean()))
