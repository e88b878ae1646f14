"""The limit that a search approaches: the steps of its best trial if it had unlimited trials.

About its optimum, steps to target rise with the square of the distance. In d tuned dimensions the
least steps of random trials then have a tail that is known but for its end and its scale,

    P(log S <= s) ~ ((s - s_0) / scale)^(d/2),     s_0 = log S of the optimum

(de Haan 1981, JASA 76:467), so that log X(j) - s_0 = scale Γ_j^p with p = 2/d and Γ_j the sum of j
exponential variables: the excess of the best of N falls as N^-p. From X(1) and X(r) alone follows

- the excess log X(1) - s_0, unbiased: log(X(r)/X(1)) m_1 / (m_r - m_1), m_j = Γ(j + p)/Γ(j), with a
  relative standard deviation that is known too;
- its exact interval: t = (log X(1) - s_0)/(log X(r) - s_0) has the distribution function
  1 - (1 - t^(d/2))^(r - 1), and the excess is log(X(r)/X(1)) t/(1 - t).

One batch size has a wide interval; a trend over batch sizes is much narrower, and a trend is what
moves the critical batch size. An excess that all batch sizes share cancels in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.curves.curve import Curve
from analysis.curves.estimators import MINIMUM
from analysis.fit.interval import Interval
from analysis.fit.regimes import Regimes
from analysis.formatting import interval as text_of
from analysis.notes import Note

Array = NDArray[np.float64]

LEVEL = 0.9
"""Coverage of the intervals."""
FEWEST_TRIALS = 8
FEWEST_POINTS = 3
"""Batch sizes that a trend needs."""
_KEPT, _PART_USED, _MOST_USED = 4, 8, 4
"""Of N trials the N/8 least count, as the tail is that of the optimum's surroundings; at least the
four that dominated stopping keeps, but at most N/4."""
_FLOOR = 0.25
"""Least excess, over the mean of the batch sizes, from which the weight of a batch size follows: a
trend that meets zero does not rest on one of them alone."""


@dataclass(frozen=True, kw_only=True)
class _Tail:
    """X(1) and X(``used``) of one batch size."""

    gap: float
    """log X(used) - log X(1)."""
    used: int
    dimensions: int

    @property
    def excess(self) -> float:
        """log X(1) - s_0, unbiased."""
        return self.gap * self._factor

    @property
    def deviation(self) -> float:
        """Its standard deviation over its mean."""
        p, r = 2 / self.dimensions, self.used
        # Γ_1/Γ_r is a Beta(1, r - 1) variable, independent of Γ_r.
        product = exp(lgamma(1 + p) + lgamma(r + 2 * p) - lgamma(r + p))
        square = _moment(r, 2 * p) + _moment(1, 2 * p) - 2 * product
        return sqrt(square / (_moment(r, p) - _moment(1, p)) ** 2 - 1)

    def rounding(self, ratio: float) -> float:
        """The standard deviation of ``excess`` by brackets of the evaluation ratio ``ratio``."""
        return float(self._factor * np.log(ratio) / np.sqrt(6))

    @property
    def limit(self) -> Interval:
        """The least steps of an unlimited search over those of this one, S_0/X(1): at most 1."""
        u = np.array([(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        t = (1 - (1 - u) ** (1 / (self.used - 1))) ** (2 / self.dimensions)
        low, high = self.gap * t / (1 - t)
        return Interval.of_logs(-self.excess, -high, -low)

    @property
    def _factor(self) -> float:
        p = 2 / self.dimensions
        return _moment(1, p) / (_moment(self.used, p) - _moment(1, p))


def _tail(steps: Sequence[float], trials: int, dimensions: int | None) -> _Tail | None:
    """The tail of one search.

    Args:
        steps: X(1) … X(r) of the search, ascending; those that are exact.
        trials: N, its feasible trials.
        dimensions: tuned dimensions, without discrete choices.

    Returns:
        None where nothing follows: no tuned dimension or an unknown number of them, fewer than
        ``FEWEST_TRIALS`` trials, or fewer than two order statistics.
    """
    used = min(len(steps), max(trials // _PART_USED, min(_KEPT, trials // _MOST_USED)))
    if not dimensions or trials < FEWEST_TRIALS or used < 2 or not steps[0] > 0:
        return None
    return _Tail(gap=float(np.log(steps[used - 1] / steps[0])), used=used, dimensions=dimensions)


def _moment(j: int, p: float) -> float:
    """The mean of Γ_j^p."""
    return exp(lgamma(j + p) - lgamma(j))


@dataclass(frozen=True, kw_only=True)
class SearchTrend:
    """How far the best of N lies above its limit, over batch sizes.

    log X(1)/S_0 = offset + slope (log B - centre), at least 0.
    """

    trials: int
    dimensions: int
    limits: tuple[tuple[int, Interval], ...]
    """Batch sizes, with S_0/X(1) of each alone (``limit``)."""
    offset: float
    slope: float
    centre: float
    half_width: float
    """Of the slope's interval."""

    def excess(self, batch_sizes: ArrayLike) -> Array:
        """The trend of X(1)/S_0 at ``batch_sizes`` (n,); (n,), at least 1."""
        x = np.log(np.asarray(batch_sizes, dtype=float)) - self.centre
        return np.asarray(np.exp(np.maximum(self.offset + self.slope * x, 0.0)))

    def effect(self, cheapest: float, largest: float) -> SearchEffect:
        """By which factor the critical batch size of an unlimited search would differ.

        It is min_examples/min_steps, examples at the batch size ``cheapest`` over steps at
        ``largest``; each is over its limit by the trend there.
        """
        small, large = self.excess([cheapest, largest]).tolist()
        value = np.log(large / small)
        half = self.half_width * abs(np.log(largest / cheapest))
        return SearchEffect(
            factor=Interval.of_logs(value, value - half, value + half),
            trials=self.trials,
            dimensions=self.dimensions,
            cheapest=(cheapest, small),
            largest=(largest, large),
        )


@dataclass(frozen=True, kw_only=True)
class SearchEffect:
    """What an unlimited search would change in the critical batch size."""

    factor: Interval
    """Its critical batch size over that of the best of N."""
    trials: int
    dimensions: int
    cheapest: tuple[float, float]
    """The batch size of fewest examples, and the trend of X(1)/S_0 there."""
    largest: tuple[float, float]
    """The same of least steps."""

    def note(self, critical: Interval) -> Note | None:
        """A note where the effect exceeds the interval of the critical batch size, and is not
        zero by its own interval; else None."""
        value, low, high = self.factor.ends
        if critical.value is None or value is None or low is None or high is None:
            return None
        if critical.holds(critical.value * value) or low <= 1 <= high:
            return None
        (cheapest, small), (largest, large) = self.cheapest, self.largest
        return Note(
            "search_effect", factor=text_of(value, low, high), n=self.trials,
            dimensions=self.dimensions, cheapest=cheapest, small=small, largest=largest,
            large=large,
        )  # fmt: skip


def search_trend(curve: Curve) -> SearchTrend | None:
    """The trend of ``curve``'s search; None where its values are not minima of trials drawn alike,
    its tuned dimensions are not known, or fewer than ``FEWEST_POINTS`` batch sizes have a limit.

    It is linear in log B, by least squares with the known relative deviation of each excess and
    that of its brackets; the slope's interval is Student's, from the scatter about the line.
    """
    if curve.estimator != MINIMUM or curve.repeats or not curve.scaled_dimensions:
        return None
    tails = [
        (point.batch_size, tail)
        for point in curve.points
        if (tail := _tail(point.order_statistics, point.trials, curve.scaled_dimensions))
    ]
    if len(tails) < FEWEST_POINTS:
        return None
    x = np.log([size for size, _ in tails])
    centre = float(x.mean())
    line, half = _line(x - centre, [tail for _, tail in tails], curve.evaluation_ratio)
    return SearchTrend(
        trials=curve.trials,
        dimensions=curve.scaled_dimensions,
        limits=tuple((size, tail.limit) for size, tail in tails),
        offset=float(line[0]),
        slope=float(line[1]),
        centre=centre,
        half_width=half,
    )


def search_effect(curve: Curve, fit: Regimes | None) -> SearchEffect | None:
    """``SearchTrend.effect`` of ``curve`` between the batch sizes that its regimes rest on; None
    where it has no trend or no regimes, or its batch size grows.

    Fewest examples are an average over perfect scaling, and least steps over the plateau: the batch
    sizes are the (geometric) middles of those tested in the two regimes, the ends of the tested
    ones where a regime is not located, and the best batch size where there is a penalty.
    """
    trend = None if fit is None or curve.grows else search_trend(curve)
    if fit is None or trend is None:
        return None
    first, last = fit.fitted_over
    until, since = fit.perfect_scaling_until.value, fit.maximal_parallelism_from.value
    best = None if fit.best_batch_size is None else fit.best_batch_size.value
    small = sqrt(first * min(max(until or first, first), last))
    large = sqrt(last * max(min(since or last, last), first))
    return trend.effect(small if best is None else best, large)


def _line(x: Array, tails: Sequence[_Tail], ratio: float | None) -> tuple[Array, float]:
    """Offset and slope of the excess over ``x`` (n,), and half the slope's interval."""
    from scipy.special import stdtrit  # a third of a second to import: not at start

    y = np.array([tail.excess for tail in tails])
    relative = np.array([tail.deviation for tail in tails])
    rounding = np.array([tail.rounding(ratio or 1.0) for tail in tails])
    if not y.any():
        return np.zeros(2), 0.0
    design = np.stack([np.ones_like(x), x], axis=1)
    fitted = np.full(len(y), y.mean())
    for _ in range(5):  # weights from the line itself: an unlucky batch size is not heavier
        around = np.maximum(fitted, _FLOOR * y.mean())
        weight = 1 / (np.square(relative * around) + np.square(rounding))
        inverse = np.linalg.inv(design.T * weight @ design)
        line = inverse @ (design.T * weight @ y)
        fitted = design @ line
    freedom = len(y) - 2
    scatter = float(weight @ np.square(y - fitted)) / freedom
    half = float(stdtrit(freedom, (1 + LEVEL) / 2) * np.sqrt(scatter * inverse[1, 1]))
    return line, half
