"""What is fitted of a curve: log steps at each batch size, and what is known of their noise.

Three things are known of a point besides the curve that it lies on, and their variances add:

- *luck*: that of a best of N from its own order statistics, since log X(4) - log X(1) of a search
  in d tuned dimensions scatters as its best does (``RATIO``); that of repeated runs from their
  scatter. Each point alone says it badly, so that all of a curve together give a line of log
  deviation over log batch size, whose slope is shrunk by its own standard error.
- *the bracket*: the target was passed somewhere between the last miss and the hit.
- *the reading*: of points that were read off a figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analysis.curves.curve import Curve
from analysis.curves.estimators import BEST_OF_10, MINIMUM
from analysis.curves.points import Point
from analysis.fit.convex import PRIOR_NOISE, Array, Points

RATIO = {1: 12.0, 2: 12.0, 3: 8.0}
"""log² X(4)/X(1) over the variance of log X(1) of a search in so many dimensions. Simulated: 35,
12, 8 and 6 in one to four; in one dimension the usual 12 is kept, which errs to the wide side."""
RATIO_OF_MORE = 6.0
UNKNOWN_DIMENSIONS = 2

STEEPEST = 0.7
"""Largest slope of log deviation over log batch size: noise that halves with a doubling."""
TREND_FROM = 5
"""Batch sizes from which that slope is not 0."""


def fitted_points(curve: Curve) -> Points:
    """The points of a curve at which the target was reached; fewer than three are for the caller
    to refuse."""
    used = [point for point in curve.points if point.middles]
    x = np.log([float(point.batch_size) for point in used])
    y = np.array([float(np.log(point.middles).mean()) for point in used])
    further = np.array([_bracket(point) + (point.relative_error or 0.0) ** 2 for point in used])
    luck = _luck(curve, used, x)
    # Where nothing is known of the luck, a point must not weigh as if its bracket were all.
    unknown = 0.0 if luck.any() else PRIOR_NOISE**2
    return Points(x=x, y=y, variance=luck + further, unknown=unknown)


def _bracket(point: Point) -> float:
    """The variance of log steps that are anywhere in the bracket with equal probability; of runs,
    their brackets are as many as the evaluations at which they reached the target."""
    hit = point.steps if point.runs else point.minimum
    if point.last_miss is None or not hit:
        return 0.0
    middle = (point.last_miss + 1 + hit) / 2
    return ((hit - point.last_miss) / middle) ** 2 / 12 / max(len({*point.runs}), 1)


def _luck(curve: Curve, points: Sequence[Point], x: Array) -> Array:
    """The variance of each point's log steps from repeats or order statistics, (n,); 0: unknown."""
    deviation, freedom, counted = (np.zeros(len(points)) for _ in range(3))
    if curve.dimensions is None:
        ratio = RATIO[UNKNOWN_DIMENSIONS]
    else:
        ratio = RATIO.get(max(curve.dimensions, 1), RATIO_OF_MORE)
    for i, point in enumerate(points):
        if len(point.middles) > 1:
            deviation[i] = float(np.log(point.middles).std(ddof=1))
            freedom[i], counted[i] = len(point.middles) - 1, len(point.middles)
        elif _drawn_alike(point) and point.minimum and point.fourth:
            deviation[i] = math.log(point.fourth / point.minimum) / math.sqrt(ratio)
            freedom[i], counted[i] = 1.0, 1.0
    known = freedom > 0
    if not known.any():
        return np.zeros(len(points))
    trend = np.exp(2 * _slope(x[known], deviation[known]) * (x - x[known].mean()))
    pooled = (freedom * deviation**2 / trend)[known].sum() / freedom[known].sum()
    return np.asarray(pooled * trend / np.where(known, counted, 1.0))


def _drawn_alike(point: Point) -> bool:
    """Whether a point is a best of trials whose order statistics are those of a random sample."""
    ranked = point.estimator in (MINIMUM, BEST_OF_10)
    return ranked and point.exact and point.exchangeable


def _slope(x: Array, deviation: Array) -> float:
    """The slope of log deviation over log batch size, shrunk by its standard error (James & Stein
    1961's positive part), 0 where there are few."""
    x, deviation = x[deviation > 0], deviation[deviation > 0]
    if len(x) < TREND_FROM:
        return 0.0
    y, away = np.log(deviation), x - x.mean()
    squares = float(away @ away)
    slope = float(away @ y) / squares
    residual = y - y.mean() - slope * away
    error = float(residual @ residual) / (len(x) - 2) / squares
    if slope == 0.0:
        return 0.0
    return float(np.clip(slope * max(1 - error / slope**2, 0.0), -STEEPEST, STEEPEST))
