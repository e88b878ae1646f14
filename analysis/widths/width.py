"""How far the interval of a quantity reaches from its estimate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.curves.curve import curves
from analysis.curves.estimators import EstimatorError
from analysis.fit.interval import Interval
from analysis.fit.regimes import Regimes, regimes_of


@dataclass(frozen=True, kw_only=True)
class Width:
    """The width of one curve's interval."""

    label: str
    """The curve's."""
    factor: float
    """See ``width``."""


def width(interval: Interval) -> float:
    """The factor within which an interval lies about its estimate, on both sides: the larger of
    value/low and high/value; infinite where an end is open."""
    value, low, high = interval.ends
    if value is None or low is None or high is None or not low > 0:
        return math.inf
    return max(value / low, high / value)


def widths(trials: pd.DataFrame, studies: pd.DataFrame, quantity: str) -> Sequence[Width]:
    """The width of the 90 % interval of a quantity, of each curve of a sweep.

    Args:
        trials, studies: rows of the tables.
        quantity: one of ``analysis.fit.interval.QUANTITIES``.

    Returns:
        One a curve; infinite where too few batch sizes reached the target, or where the trials do
        not carry the estimator yet.
    """
    try:
        made = curves(trials, studies=studies)
    except EstimatorError:
        return [Width(label="all curves", factor=math.inf)]
    fits = regimes_of(made)
    return [
        Width(
            label=curve.label,
            factor=width(getattr(fit, quantity)) if isinstance(fit, Regimes) else math.inf,
        )
        for curve, fit in zip(made, fits, strict=True)
    ]
