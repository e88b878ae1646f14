"""The law of optimal batch sizes, B_opt = k · D^p, from the parabolas of all budgets at once.

Under the law the slope of each parabola is 0 at v = log k + p log D. Of m budgets the statistic

    Q(k, p) = sum of slope(v)² / (variance of slope(v) + (2 c t)²)

is the weighted sum of squares by which parabolas whose vertices keep the law fit worse than free
ones, c the curvature: Fieller's statistic (1954), of all budgets together. A minimum too flat for
an interval of its own has a small weight there, and need not be left out, which would be a
selection. t is how far vertices lie off the law beyond their errors, in log B: that of Paule &
Mandel 1982, with Q = m - 2 at its least, or 0. Intervals hold the values at which the least Q is at
most Student's quantile squared above its least, with m - 2 degrees of freedom, as in
``analysis.fit.laws``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.fit.budgets.parabolas import Parabola, noises, parabola_at, whole_parabola
from analysis.fit.convex import Array

SIZE = 0.005
"""One-sided level at which the mean curvature is above 0."""
STEEPEST = 5.0
"""Exponents beyond it are none: an interval that reaches so far is open."""
FARTHEST = float(np.log(1e6))
"""The same of log B_opt, above or below its estimate."""
_EXACT = 1e-9
"""The least standard deviation of log B_opt: data without noise have an exact law."""
_NEAR = 2.0
"""Distance in log B up to which the least Q is searched from a vertex of a parabola."""
_GOLDEN = (np.sqrt(5) - 1) / 2
_ROUNDS = 45
_CELLS = 9


@dataclass(frozen=True, kw_only=True)
class Line:
    """log B_opt = height + slope · (log D - middle), whose errors are independent at ``middle``."""

    middle: float
    height: float
    slope: float
    height_ends: tuple[float, float]
    slope_ends: tuple[float, float]
    scatter: float
    """t, in log B."""

    def at(self, log_budget: Array) -> tuple[Array, Array, Array]:
        """log B_opt at ``log_budget`` (n,), and the ends of its interval; (n,) each."""
        away = np.asarray(log_budget, dtype=np.float64) - self.middle
        value = self.height + self.slope * away
        down, up = (abs(end - self.height) for end in self.height_ends)
        less, more = (abs(end - self.slope) for end in self.slope_ends)
        under = np.hypot(down, away * np.where(away > 0, less, more))
        over = np.hypot(up, away * np.where(away > 0, more, less))
        return value, value - under, value + over


def line(
    log_budgets: Array,
    losses: Sequence[tuple[Array, Array]],
    fits: Sequence[Parabola],
    *,
    level: float,
) -> Line | None:
    """The law of three or more budgets (m,); None where an end of it is open, or no minimum is
    certain.

    Args:
        losses: log B and loss, (n,) each, of each budget.
        fits: their parabolas, each about its own vertex.
    """
    x, spare = np.asarray(log_budgets, dtype=np.float64), len(fits) - 2
    if not curved(x, losses):
        return None
    q = _Statistic(x, fits)
    at, scatter, least = q.fitted(spare)
    passed: dict[bytes, Array] = {}
    while True:
        v = at[0] + at[1] * (x - q.middle)
        fits = [
            parabola_at(*each, near) for each, near in zip(losses, _inside(losses, v), strict=True)
        ]
        key = b"".join(fit.counted.tobytes() for fit in fits)
        cycle = [*passed].index(key) if key in passed else None
        passed[key] = v
        if cycle is not None and cycle < len(passed) - 1:
            # The batch sizes that count alternate: those about the mean of these laws.
            v = np.mean([*passed.values()][cycle:], axis=0)
            fits = [
                parabola_at(*each, near)
                for each, near in zip(losses, _inside(losses, v), strict=True)
            ]
        if cycle is None or cycle < len(passed) - 1:
            q = _Statistic(x, fits)
            at, scatter, least = q.fitted(spare)
        if cycle is not None:
            break
    at = q.center(at, scatter)
    goal = least + _student(spare, level) ** 2
    ends = []
    for place, reach in ((0, FARTHEST), (1, STEEPEST)):
        sides = [q.end(place, at, sign * reach, scatter, goal) for sign in (-1, 1)]
        if np.isnan(sides).any():
            return None
        ends.append((sides[0], sides[1]))
    return Line(
        middle=q.middle, height=float(at[0]), slope=float(at[1]), height_ends=ends[0],
        slope_ends=ends[1], scatter=scatter,
    )  # fmt: skip


def curved(log_budgets: Array, losses: Sequence[tuple[Array, Array]]) -> bool:
    """Whether the weighted mean of the curvatures, over all batch sizes, is above 0."""
    fits = [whole_parabola(*each) for each in losses]
    of_each = noises(log_budgets, fits)
    variances = np.array([n.variance * f.spread[2, 2] for n, f in zip(of_each, fits, strict=True)])
    weights = 1 / np.maximum(variances, np.finfo(float).tiny)
    mean = weights @ [fit.coefficients[2] for fit in fits] / weights.sum()
    freedom = sum(fit.spare for fit in fits)
    return bool(mean * np.sqrt(weights.sum()) > _student(freedom, 1 - 2 * SIZE))


def _inside(losses: Sequence[tuple[Array, Array]], v: Array) -> list[float]:
    """``v`` (m,), clipped to the tested batch sizes of each budget."""
    return [float(np.clip(at, x.min(), x.max())) for at, (x, _) in zip(v, losses, strict=True)]


def _student(freedom: float, level: float) -> float:
    from scipy.special import stdtrit  # a third of a second to import: not at start

    return float(stdtrit(freedom, 0.5 + level / 2))


class _Statistic:
    """Q as a function of (height, slope), the law's log B_opt = height + slope (log D - middle)."""

    def __init__(self, x: Array, fits: Sequence[Parabola]) -> None:
        self.x, self.middle = x, float(x.mean())
        # slope(v) = rise + rate · v, whose variance is a quadratic of v - centers.
        self.centers = np.array([fit.center for fit in fits])
        coefficients = np.array([fit.coefficients for fit in fits])
        curvature = coefficients[:, 2]
        self.rate = 2 * np.where(curvature == 0, np.finfo(float).tiny, curvature)
        self.rise = coefficients[:, 1] - self.rate * self.centers
        noise = np.array([each.variance for each in noises(x, fits)])
        spread = np.array([fit.spread for fit in fits]) * noise[:, None, None]
        self.spread = spread[:, 1, 1], 4 * spread[:, 1, 2], 4 * spread[:, 2, 2]
        self.vertices = -self.rise / self.rate

    def variances(self, v: Array, scatter: float) -> Array:
        """Of the slopes at ``v`` (…, m)."""
        u, (square, cross, last) = v - self.centers, self.spread
        return square + cross * u + last * u * u + self.rate**2 * (scatter**2 + _EXACT**2)

    def roots(self, height: Any, slope: Any, scatter: float) -> Array:
        """Signed roots of the terms of laws (…); (…, m)."""
        v = np.asarray(height)[..., None] + np.asarray(slope)[..., None] * (self.x - self.middle)
        return np.asarray((self.rise + self.rate * v) / np.sqrt(self.variances(v, scatter)))

    def fitted(self, spare: int) -> tuple[Array, float, float]:
        """Height and slope, t, and the least Q."""
        from scipy.optimize import brentq

        at, least = self.least(0.0, None)
        if least <= spare:
            return at, 0.0, least
        high = 0.1
        while self.least(high, at)[1] > spare and high < FARTHEST:
            high *= 2
        scatter = high
        if high < FARTHEST:
            scatter = brentq(lambda t: self.least(t, at)[1] - spare, 0.0, high, xtol=1e-9)
        at, least = self.least(scatter, at)
        return at, float(scatter), least

    def least(self, scatter: float, near: Array | None) -> tuple[Array, float]:
        """Height and slope of the least Q, and that; from ``near`` (2,), or from all lines through
        two of the vertices."""
        from scipy.optimize import least_squares

        if near is None:
            i, j = np.triu_indices(len(self.x), 1)
            slope = (self.vertices[j] - self.vertices[i]) / (self.x[j] - self.x[i])
            slope = np.clip(slope, -STEEPEST, STEEPEST)
            height = self.vertices[i] - slope * (self.x[i] - self.middle)
            best = int(np.square(self.roots(height, slope, scatter)).sum(-1).argmin())
            near = np.array([height[best], slope[best]])
        fit = least_squares(
            lambda p: self.roots(p[0], p[1], scatter), near, xtol=1e-14, ftol=1e-14, gtol=None
        )
        return np.asarray(fit.x), float(2 * fit.cost)

    def center(self, at: Array, scatter: float) -> Array:
        """Move ``middle`` to the weighted mean of log D, where the errors of height and slope are
        independent; the law ``at`` from there."""
        v = at[0] + at[1] * (self.x - self.middle)
        weight = self.rate**2 / self.variances(v, scatter)
        before, self.middle = self.middle, float(weight @ self.x / weight.sum())
        return np.array([at[0] + at[1] * (self.middle - before), at[1]])

    def end(self, place: int, at: Array, reach: float, scatter: float, goal: float) -> float:
        """How far height (``place`` 0) or slope (1) may go from its estimate towards ``reach``
        beyond it for the least Q to stay below ``goal``; NaN where it may go all of the way."""
        grid = at[place] + np.append(0.0, reach * 2.0 ** np.arange(-24, 1))
        for _ in range(4):
            within = self.profile(place, grid, at, scatter) <= goal
            within[0] = True
            cell = int(np.flatnonzero(within)[-1])  # the outermost, where several are within
            if cell == len(grid) - 1:
                return float("nan")
            grid = np.linspace(grid[cell], grid[cell + 1], _CELLS + 1)
        return float(grid[_CELLS // 2])

    def profile(self, place: int, values: Array, near: Array, scatter: float) -> Array:
        """The least Q with height or slope at ``values`` (g,); (g,).

        The other one is searched, by golden sections, from where the best of the vertices lies on
        the law, or from its estimate.
        """
        away = self.x - self.middle

        def sums(free: Array) -> Array:
            """Of the other one at ``free`` (g, …)."""
            fixed = values.reshape(-1, *[1] * (free.ndim - 1))
            height, slope = (fixed, free) if place == 0 else (free, fixed)
            return np.asarray(np.square(self.roots(height, slope, scatter)).sum(-1))

        if place == 1:
            starts, reach = self.vertices - values[:, None] * away, _NEAR
        else:
            far = np.where(np.abs(away) > 1e-9, away, np.inf)
            starts, reach = (self.vertices - values[:, None]) / far, _NEAR / np.ptp(self.x)
        starts = np.column_stack([starts, np.full(len(values), near[1 - place])])
        start = starts[np.arange(len(values)), sums(starts).argmin(1)]
        low, high = start - reach, start + reach
        for _ in range(_ROUNDS):
            span = _GOLDEN * (high - low)
            left, right = high - span, low + span
            lower = sums(left) < sums(right)
            low, high = np.where(lower, low, left), np.where(lower, right, high)
        return np.minimum(sums((low + high) / 2), sums(start))
