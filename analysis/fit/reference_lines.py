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
    """A regime over batch sizes; ``sure`` if both of its ends are given, else it is bounded: it
    lies somewhere in the span, or nowhere."""

    regime: int
    low: float
    high: float
    sure: bool


def regime_spans(regimes: Regimes) -> list[RegimeSpan]:
    """The regimes of a curve over the batch sizes that reached the target, as far as the table
    gives their ends; batch sizes of which it says nothing are in no span.

    Perfect scaling begins at the best batch size of a curve with a small-batch penalty.
    """
    first, last = map(float, regimes.fitted_over)
    perfect, maximal = regimes.perfect_scaling_until, regimes.maximal_parallelism_from
    best = regimes.best_batch_size
    begin = first if best is None else best.value or best.high or last
    # Perfect scaling surely lasts until the first, at most until the second; maximal parallelism
    # begins at the first at the earliest, and surely at the second.
    until, until_may = perfect.value or perfect.low or begin, perfect.value or perfect.high or last
    start_may, start = maximal.value or maximal.low or first, maximal.value or maximal.high or last
    spans = [
        RegimeSpan(0, begin, until, sure=True),
        RegimeSpan(1, max(begin, until_may), start_may, sure=True),
        RegimeSpan(2, max(start, until), last, sure=True),
    ]
    if perfect.value is None and not perfect.is_open:
        end = last if maximal.is_open else start_may
        spans.append(RegimeSpan(0, until, min(until_may, end), sure=False))
    if maximal.value is None and not maximal.is_open:
        end = first if perfect.is_open else until_may
        spans.append(RegimeSpan(2, max(start_may, end), start, sure=False))
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
