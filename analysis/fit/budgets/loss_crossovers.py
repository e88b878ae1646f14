"""Which of two curves has the better final loss at a batch size, and where that changes.

The noise of a loss is the scatter of runs of one configuration (seeds) about their mean: a variance
pooled over the batch sizes of a curve, or a batch size's own where that has ``OWN`` runs; of a
curve of single runs that of all curves. Differences of means have the t distribution of Welch
(1947, doi:10.1093/biomet/34.1-2.28), with the degrees of freedom of Satterthwaite (1946). The
errors of two curves are taken to be independent.

A crossover is claimed between two tested batch sizes at which different curves are told to be
better: if losses are continuous in the batch size, one lies there. Its value is where a cubic in
log batch size through the four nearest differences of means is 0. Its interval has all batch sizes
at which the cubic differs from 0 by less than its noise and its own error together. That error is
taken to be at most its distance from the straight line between the two nearest means, as of losses
that are smooth over a few tested batch sizes. Where there are two batch sizes alone, the interval
is all between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from analysis.fit.convex import Array
from analysis.fit.crossovers import changes_between, signs_of
from analysis.fit.interval import Interval
from analysis.formatting import interval as text_of

LEVEL = 0.9
"""Coverage of the intervals of single losses and crossovers."""
OWN = 5
"""Runs from which on a batch size has a variance of its own."""
_PLACES = 193


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The variance of one run's loss, and its degrees of freedom; NaN and 0 where unknown."""

    variance: float = float("nan")
    freedom: int = 0

    @classmethod
    def of(cls, samples: Iterable[Sequence[float]]) -> Noise:
        """Pooled over samples about their means; unknown without two unequal values in one."""
        arrays = [np.asarray(each) for each in samples]
        squares = sum(float(((each - each.mean()) ** 2).sum()) for each in arrays)
        freedom = sum(len(each) - 1 for each in arrays)
        return cls(variance=squares / freedom, freedom=freedom) if squares > 0 else cls()


@dataclass(frozen=True, kw_only=True)
class Place:
    """A curve at one batch size: its final losses, whose mean counts."""

    curve: str
    batch_size: int
    runs: tuple[float, ...]
    """The final value of each run of the best configuration."""
    failed: int = 0
    """Runs without one. Such a place is the last, and compared with no other."""
    configurations: int = 1
    """Of how many configurations (learning rates) that is the best."""
    learning_rate: float | None = None
    noise: Noise = Noise()
    p: float | None = None
    """Of "the best curve here is no better than this one", corrected; None where unknown."""

    @property
    def compared(self) -> bool:
        return bool(self.runs) and not self.failed

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.runs)) if self.runs else None

    @property
    def error(self) -> float | None:
        """The standard error of the mean."""
        known = self.runs and self.noise.freedom
        return float(np.sqrt(self.noise.variance / len(self.runs))) if known else None

    @property
    def interval(self) -> Interval:
        """The mean with its interval; each tail is divided by the number of configurations."""
        if self.mean is None or self.error is None:
            return Interval(value=self.mean)
        half = self.error * float(
            _quantile((1 - LEVEL) / 2 / self.configurations, self.noise.freedom)
        )
        return Interval(value=self.mean, low=self.mean - half, high=self.mean + half)

    def to_dict(self) -> dict[str, Any]:
        return {
            "curve": self.curve,
            "mean": self.mean,
            "standard_error": self.error,
            "low": self.interval.low,
            "high": self.interval.high,
            "runs": len(self.runs),
            "failed": self.failed,
            "configurations": self.configurations,
            "learning_rate": self.learning_rate,
            "p": self.p,
        }


@dataclass(frozen=True, kw_only=True)
class LossCrossover:
    """Two curves, over the batch sizes that both were run at."""

    first: str
    second: str
    batch_sizes: tuple[int, ...]
    lower: tuple[str, ...]
    """The curve with the better mean at each of them."""
    at: tuple[Interval, ...]
    """Batch sizes at which the better curve changes, ascending."""
    better: tuple[str | None, ...]
    """The curve that is better below, between and above these; None where neither is told to be
    better anywhere."""

    @property
    def sentence(self) -> str:
        """As ``batchscale regimes --read final`` prints it."""
        pair = f"{self.first} and {self.second}"
        if self.at:
            places = " and ".join(text_of(*each.ends) for each in self.at)
            which = f"{self.better[0]} is better below, {self.better[-1]} above"
            if len(self.at) > 1:
                order = ", ".join(map(str, self.better))
                which = f"better are, from small to large batch sizes, {order}"
            return f"{pair} cross at batch size {places}: {which}"
        ends = list(zip(pairwise(self.batch_sizes), pairwise(self.lower), strict=True))
        if changes := [f"{a:,} and {b:,}" for (a, b), (low, high) in ends if low != high]:
            return (
                f"whether {pair} cross cannot be told: the better mean changes between batch sizes "
                f"{', '.join(changes)}, but on both sides the two are not told apart"
            )
        tested = f"from batch size {self.batch_sizes[0]:,} to {self.batch_sizes[-1]:,}"
        which = f"{self.better[0]} is better where they can be told apart"
        if self.better[0] is None:
            which = "they cannot be told apart"
        return f"no crossover of {pair} {tested}: {which}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "second": self.second,
            "at": [each.to_dict() for each in self.at],
            "better": list(self.better),
            "batch_sizes": list(self.batch_sizes),
            "sentence": self.sentence,
        }


def p_value(better: Place, other: Place) -> float:
    """Of the hypothesis that ``better``, which has the better mean, is no better than the other:
    one-sided, uncorrected; NaN where the noise is unknown."""
    from scipy.special import stdtr

    pairs = [(place.noise, np.full(1, 1 / len(place.runs))) for place in (better, other)]
    error, freedom = _error(pairs)
    means = [np.mean(place.runs) for place in (better, other)]
    return float(stdtr(freedom, -abs(means[0] - means[1]) / error)[0])


def loss_crossover(
    firsts: Sequence[Place], seconds: Sequence[Place], *, sign: float, least: float
) -> LossCrossover | None:
    """The crossovers of two curves; None of curves with fewer than two batch sizes in common.

    Args:
        firsts, seconds: a place a batch size.
        sign: 1 where less is better, else -1.
        least: the one-sided p-value from which on two places are told apart.
    """
    others = {place.batch_size: place for place in seconds if place.compared}
    pairs = [(a, others[a.batch_size]) for a in firsts if a.compared and a.batch_size in others]
    if len(pairs) < 2:
        return None
    pairs.sort(key=lambda pair: pair[0].batch_size)
    nodes = np.log([float(a.batch_size) for a, _ in pairs])
    means = sign * np.array([np.mean(a.runs) - np.mean(b.runs) for a, b in pairs])
    p_values = np.array([p_value(a, b) for a, b in pairs])
    x = np.union1d(nodes, np.linspace(nodes[0], nodes[-1], _PLACES))
    sure = np.zeros(len(x), dtype=np.int64)
    sure[np.searchsorted(x, nodes)] = np.sign(means) * (p_values <= least)
    weights = interpolation(nodes, x, 4)
    middle = weights @ means
    shares = [
        (place.noise, weights[:, at] ** 2 / len(place.runs))
        for at, pair in enumerate(pairs)
        for place in pair
    ]
    error, freedom = _error(shares)
    most = max(place.configurations for pair in pairs for place in pair)
    own = np.abs(middle - interpolation(nodes, x, 2) @ means)
    if len(nodes) == 2:
        own[1:-1] = np.inf
    half = own + _quantile((1 - LEVEL) / 2 / most, freedom) * error
    signs, logs = changes_between(x, middle, signs_of(middle - half, middle + half), sure)
    names = pairs[0][0].curve, pairs[0][1].curve
    return LossCrossover(
        first=names[0],
        second=names[1],
        batch_sizes=tuple(a.batch_size for a, _ in pairs),
        lower=tuple(names[int(mean > 0)] for mean in means),
        at=tuple(Interval.of_logs(*each) for each in logs),
        better=tuple(names[int(each > 0)] for each in signs) or (None,),
    )


def interpolation(nodes: Array, x: Array, points: int) -> Array:
    """The weights (m, n) of values at ``nodes`` (n,) in a polynomial through so many of them about
    the two that each x (m,) lies between (Lagrange)."""
    points = min(points, len(nodes))
    segment = np.clip(np.searchsorted(nodes, x, side="right") - 1, 0, len(nodes) - 2)
    first = np.clip(segment - (points // 2 - 1), 0, len(nodes) - points)
    near = first[:, None] + np.arange(points)
    weights = np.zeros((len(x), len(nodes)))
    for at in range(points):
        others = np.delete(near, at, axis=1)
        here = near[:, at]
        shares = (x[:, None] - nodes[others]) / (nodes[here][:, None] - nodes[others])
        weights[np.arange(len(x)), here] = shares.prod(axis=1)
    return weights


def _error(shares: Iterable[tuple[Noise, Array]]) -> tuple[Array, Array]:
    """The standard error of a sum, and its degrees of freedom, by how much of each noise's variance
    is in it; (n,) each. Places that share an estimate of it are in one term."""
    terms: dict[int, tuple[Noise, Array]] = {}
    for noise, share in shares:
        before = terms.get(id(noise), (noise, np.zeros_like(share)))[1]
        terms[id(noise)] = noise, before + share
    if not all(noise.freedom for noise, _ in terms.values()):
        unknown = np.full_like(share, np.nan)
        return unknown, unknown
    variances = [noise.variance * share for noise, share in terms.values()]
    squares = [
        v**2 / noise.freedom for v, (noise, _) in zip(variances, terms.values(), strict=True)
    ]
    return np.sqrt(sum(variances)), np.asarray(sum(variances)) ** 2 / sum(squares)


def _quantile(tail: float, freedom: Array | int) -> Array:
    from scipy.special import stdtrit

    return np.asarray(stdtrit(freedom, 1 - tail))
