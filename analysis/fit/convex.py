"""Steps to target without a form: log S is convex in log B.

Perfect scaling is slope -1, maximal parallelism slope 0, diminishing returns lie between: a curve
whose slope rises from -1 to 0 is a member whatever its bend, its plateau, or the lack of either.
With x = log B, knots t and weights w on the simplex,

    log S(x) = c + h x - (h - l) sum_j w_j min(x, t_j),        slopes between l and h,

so that the best curve is a least-squares problem with bounds (Hildreth 1954,
doi:10.1080/01621459.1954.10483523), solved by non-negative least squares (Lawson & Hanson 1974).
Knots lie between the data too: a convex curve runs below the chord of two points. Families with
slopes down to -2 (a small-batch penalty) or up to 1 (steps that rise again) are taken where the
data ask for them.

A quantity that is linear in the curve has the profile interval of all values at which the
constrained sum of squares is at most SSE + s² F(level; 1, d). s² has a weak prior (a few points
that happen to be convex leave no residual) and what is known of the points' own noise as its floor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HEAVY = 1e4
"""Weight of a row of the least squares that is a constraint."""
BETWEEN = 4
"""Parts into which knots divide the way from one batch size to the next."""
PRIOR_NOISE, PRIOR_WEIGHT = 0.06, 4.0
"""What is assumed of the scatter of log steps before there are residuals, and how many residuals
that counts for."""
PER_KNOT = 1.5
"""Degrees of freedom that a knot in use takes: its place and its weight, partly bounded."""
WIDER_FROM = 5
"""Batch sizes from which slopes beyond -1 and 0 are tested."""
SIZE = 0.05
"""Level of the test whether the data ask for such slopes."""
NEARLY = 0.5
"""Level of that test below which intervals hold those of both families."""
EXACT = 1e-6
"""Least assumed noise of log steps where points are exact to rounding."""


@dataclass(frozen=True, kw_only=True)
class Points:
    """What is fitted: a point a batch size, ascending, in natural logs; (n,) each."""

    x: Array
    y: Array
    variance: Array
    """What is known of each point's variance from other sources than the curve; 0: nothing."""
    unknown: float = 0.0
    """What is assumed of a further variance that all points have, for their weights alone."""

    @cached_property
    def weights(self) -> Array:
        """Of the squares: inverse to the variances, where there are any, with the mean 1; (n,)."""
        whole = self.variance + self.unknown
        if not (whole > 0).all():
            return np.ones_like(self.x)
        return np.asarray((1 / whole) / (1 / whole).mean())

    @cached_property
    def floor(self) -> float:
        """The variance of a point of weight 1, as far as it is known."""
        return float((self.weights * self.variance).mean())

    def take(self, places: NDArray[np.bool_]) -> Points:
        """Some of the points."""
        return Points(
            x=self.x[places], y=self.y[places], variance=self.variance[places], unknown=self.unknown
        )

    @property
    def span(self) -> tuple[float, float]:
        """The logs of the smallest and the largest batch size."""
        return float(self.x[0]), float(self.x[-1])


@dataclass(frozen=True, kw_only=True)
class Linear:
    """A quantity that is linear in the curve: ``row @ coefficients + offset``."""

    row: Array
    offset: float = 0.0

    def __sub__(self, other: Linear) -> Linear:
        return Linear(row=self.row - other.row, offset=self.offset - other.offset)

    def plus(self, offset: float) -> Linear:
        return Linear(row=self.row, offset=self.offset + offset)

    def over(self, scale: float) -> Linear:
        return Linear(row=self.row / scale, offset=self.offset / scale)


class Family:
    """The convex curves over given log batch sizes (n,), with slopes from ``low`` to ``high``."""

    def __init__(self, x: Array, low: float = -1.0, high: float = 0.0) -> None:
        self.x, self.low, self.high = x, low, high
        between = [np.linspace(a, b, BETWEEN + 1)[:-1] for a, b in itertools.pairwise(x)]
        # A knot at the first batch size is a slope of `high` from there on, one beyond the last
        # a slope of `low` throughout.
        self.knots = np.concatenate([*between, x[-1:]])
        self._rows: dict[float, Array] = {}
        self.design = np.vstack([self._row(float(each)) for each in x])

    def _row(self, x: float) -> Array:
        if x not in self._rows:
            falls = (self.high - self.low) * np.minimum(x - self.x[0], self.knots - self.x[0])
            self._rows[x] = np.concatenate([[1.0, -1.0], -falls])
        return self._rows[x]

    def log_steps(self, x: float) -> Linear:
        """log S at log batch size ``x``."""
        return Linear(row=self._row(x), offset=self.high * (x - float(self.x[0])))

    def log_examples(self, x: float) -> Linear:
        """log B·S there."""
        return self.log_steps(x).plus(x)

    def solve(
        self, points: Points, quantity: Linear | None = None, value: float = 0.0
    ) -> tuple[Array, float]:
        """The best coefficients and their weighted sum of squares, among curves on which
        ``quantity`` has that value; infinite where there is no such curve."""
        from scipy.optimize import nnls  # a third of a second to import: not at start

        root = np.sqrt(points.weights)
        rest = points.y - self.high * (self.x - self.x[0])
        rows = [self.design * root[:, None], HEAVY * np.r_[0.0, 0.0, np.ones(len(self.knots))]]
        right = [rest * root, [HEAVY]]
        if quantity is not None:
            rows.append(HEAVY * quantity.row)
            right.append([HEAVY * (value - quantity.offset)])
        coefficients, _ = nnls(np.vstack(rows), np.concatenate(right), maxiter=20_000)
        if quantity is not None:
            reached = float(quantity.row @ coefficients) + quantity.offset
            if abs(reached - value) > 1e-3:
                return coefficients, math.inf
        off = root * (self.design @ coefficients - rest)
        return coefficients, float(off @ off)


@dataclass(frozen=True, eq=False)
class Fit:
    """The best curve of a family, and how far others may be from it."""

    family: Family
    points: Points
    coefficients: Array
    sse: float
    variance: float
    """s², of a point of weight 1."""
    spare: float
    """Degrees of freedom of ``variance``, those of its prior among them."""
    span: tuple[float, float]
    """The log batch sizes, least and largest, over which its quantities are taken."""

    @classmethod
    def of(
        cls,
        points: Points,
        low: float = -1.0,
        high: float = 0.0,
        *,
        within: tuple[float, float] | None = None,
    ) -> Fit:
        family = Family(points.x, low, high)
        coefficients, sse = family.solve(points)
        count = len(points.x)
        used = min(int((coefficients[2:] > 1e-7).sum()), count)
        left = max(count - PER_KNOT * used, 0.0)
        prior = PRIOR_WEIGHT * PRIOR_NOISE**2
        residual = (sse + prior) / (left + PRIOR_WEIGHT)
        return cls(
            family=family,
            points=points,
            coefficients=coefficients,
            sse=sse,
            variance=max(residual, points.floor, EXACT**2),
            spare=left + PRIOR_WEIGHT,
            span=within or points.span,
        )

    def at(self, quantity: Linear) -> float:
        """Its value on this curve."""
        return float(quantity.row @ self.coefficients) + quantity.offset

    def log_steps(self, x: float) -> float:
        return self.at(self.family.log_steps(x))

    def log_examples(self, x: float) -> float:
        return self.at(self.family.log_examples(x))

    def excess(self, quantity: Linear, value: float) -> float:
        """By how much the sum of squares rises if ``quantity`` has that value, in units of s²."""
        return (self.family.solve(self.points, quantity, value)[1] - self.sse) / self.variance

    def most(self, level: float) -> float:
        """The excess up to which a value is in the interval of ``level``."""
        from scipy.special import fdtri

        return float(fdtri(1.0, self.spare, level))

    @cached_property
    def grid(self) -> Array:
        """Log batch sizes at which places along the curve are searched, (g,)."""
        low, high = self.span
        x = self.points.x
        x = np.array([low, *x[(x > low) & (x < high)], high])
        parts = [np.linspace(a, b, 13)[:-1] for a, b in itertools.pairwise(x)]
        return np.concatenate([*parts, x[-1:]])

    @cached_property
    def cheapest(self) -> float:
        """The smallest log batch size at which fitted examples to target are least."""
        return self._least([self.log_examples(x) for x in self.grid])

    @cached_property
    def quickest(self) -> float:
        """The smallest at which fitted steps to target are least; the last unless they rise."""
        steps = [self.log_steps(x) for x in self.grid]
        rises = steps[-1] - min(steps) > 1e-9
        return self._least(steps) if rises else float(self.grid[-1])

    def _least(self, logs: Sequence[float]) -> float:
        return float(self.grid[np.flatnonzero(np.array(logs) <= min(logs) + 1e-9)[0]])

    @property
    def noise(self) -> float:
        """Standard deviation of log steps of a point of weight 1."""
        return math.sqrt(self.variance)


@dataclass(frozen=True, kw_only=True)
class Fits:
    """The curve that is used, and others that fit about as well."""

    best: Fit
    near: tuple[Fit, ...]
    """Of families with slopes beyond the usual, or of the usual one; intervals hold theirs too."""
    penalty_p: float
    """Level of the test that slopes at small batch sizes are not below -1; 1 where not tested."""
    rise_p: float
    """The same of slopes above 0 at large ones."""

    @property
    def every(self) -> tuple[Fit, ...]:
        return (self.best, *self.near)


def fits(points: Points, within: tuple[float, float] | None = None) -> Fits:
    """Fit convex curves to three batch sizes at least, with slopes beyond -1 and 0 where the data
    ask for them.

    Args:
        within: the log batch sizes over which quantities are taken; those of the points by default.
    """
    of = partial(Fit.of, points, within=within)
    usual = of()
    if len(points.x) < WIDER_FROM:
        return Fits(best=usual, near=(), penalty_p=1.0, rise_p=1.0)
    steep, rising = of(low=-2.0), of(high=1.0)
    penalty_p, rise_p = _level(usual, steep), _level(usual, rising)
    best, near = usual, [(steep, penalty_p), (rising, rise_p)]
    if penalty_p < SIZE or rise_p < SIZE:
        # Of one end that bends away the other is told better.
        best = steep if penalty_p <= rise_p else rising
        both = of(low=-2.0, high=1.0)
        other_p = _level(best, both)
        if best is steep:
            rise_p = other_p
        else:
            penalty_p = other_p
        best, near = (both, []) if other_p < SIZE else (best, [(both, other_p)])
    nearly = tuple(fit for fit, p in near if p < NEARLY)
    return Fits(best=best, near=nearly, penalty_p=penalty_p, rise_p=rise_p)


def _level(narrow: Fit, wide: Fit) -> float:
    """The level of the F test that the wider family fits no better."""
    from scipy.special import fdtrc

    gain = max(narrow.sse - wide.sse, 0.0) / wide.variance
    return float(fdtrc(1.0, wide.spare, gain)) if gain > 0 else 1.0
