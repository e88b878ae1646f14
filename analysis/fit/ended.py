"""Curves whose small-batch penalty ends below the knee, and profile likelihoods by them.

    S(B) = S_min (1 + (B_crit / B)^k)^(1 / k) (1 + (B_0 / B)^c)

Examples E(B) = B·S(B) fall as B^-c up to B_0 and rise from B_crit on. At the minimum both slopes of
log E against log B are of one size s, below 1 and below c:

    sigmoid(k (log B_crit - log B)) = 1 - s,        c sigmoid(c (log B_0 - log B)) = s.

A shape is (r, log k, log c), r = logit(s / min(c, 1)); it gives the distances of B_crit and B_0
from the minimum of E, whose place and S_min complete the five parameters. S_min is linear in log
steps, so that it is the mean residual; the others are fitted by Levenberg-Marquardt on many rows at
once, as ``analysis.fit.least_squares`` fits knees. Each quantity of such a curve lies at a distance
from the minimum that the shape gives: it is held at a value by moving the minimum, and its profile
is a fit of the shape alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.fit.knee import BENDS, BEST, FREE, MEETING, Array, Rows, sigmoid

EXPONENTS = (0.25, 2.0)
"""Bounds of c. With a larger one a single point, high above all others, would be a penalty."""

PARAMETERS = 5
"""S_min, B_crit, k, B_0 and c."""

RISE, BEND, EXPONENT = range(3)
"""Places in a shape: r, log k, log c."""

_FLATTEST = 10.0
"""Bound of |r|: at the minimum E is as flat as slopes of 5e-5 make it."""
_LOW = np.array([-_FLATTEST, np.log(BENDS[0]), np.log(EXPONENTS[0])])
_HIGH = np.array([_FLATTEST, np.log(BENDS[1]), np.log(EXPONENTS[1])])
_SCAN = np.stack(
    np.meshgrid([-8, -5, -3, -1.5, 0, 2], np.log([0.5, 1.0, 2.0, 4.0]), np.log([0.4, 0.8, 1.5])), -1
).reshape(-1, 3)
"""Shapes to start from, (s, 3)."""
_STARTS = 2

_PLACES = 25
"""Values of a quantity over the tested batch sizes at which its profile is computed first."""
_CELLS = 6
_ROUNDS = 2
"""Rounds that narrow an end down, and the cells that each divides its bracket into."""
_ITERATIONS = 40


def log_steps(shape: Array, at: Array) -> tuple[Array, Array, Array]:
    """log (S / S_min) at log batch sizes ``at`` (…, n) above the minimum of E, of shapes (…, 3).

    Returns it (…, n), its derivatives by the shape (…, n, 3), and by ``at`` (…, n).
    """
    k, c = np.exp(shape[..., BEND, None]), np.exp(shape[..., EXPONENT, None])
    share = sigmoid(shape[..., RISE, None])
    s = np.minimum(c, 1.0) * share
    rest, spare = 1.0 - s, np.maximum(c - s, 1e-12)
    critical, below = (np.log(rest) - np.log(s)) / k, (np.log(s) - np.log(spare)) / c
    away, under = critical - at, below - at
    knee = np.logaddexp(0.0, k * away) / k
    steep, fall = sigmoid(k * away), c * sigmoid(c * under)
    by_s = -steep / (k * s * rest) + fall / (c * s) + fall / (c * spare)
    by = np.empty((*knee.shape, 3))
    by[..., RISE] = by_s * s * (1.0 - share)
    by[..., BEND] = away * steep - knee - critical * steep
    by[..., EXPONENT] = (
        by_s * np.where(c < 1.0, s, 0.0) + under * fall - fall * (1.0 / spare + below)
    )
    return knee + np.logaddexp(0.0, c * under), by, -(steep + fall)


def distance(kind: int, shape: Array, tolerance: float) -> tuple[Array, Array]:
    """How far above the minimum of E a quantity lies, in log B, of shapes (R, 3): (R,), and its
    derivatives by the shape (R, 3).

    Args:
        kind: BEST, the minimum itself; MEETING, E_min / S_min; UNTIL, where E is 1 + tolerance
            times its least, at most MEETING.
    """
    none = np.zeros(shape.shape[:-1])
    if kind == BEST:
        return none, np.zeros_like(shape)
    least, by_least, _ = log_steps(shape, none[..., None])
    most, by_most = least[..., 0], by_least[..., 0, :]
    if kind == MEETING:
        return most, by_most
    goal = most + np.log1p(tolerance)

    def above(at: Array) -> tuple[Array, Array, Array]:
        steps, by, rate = log_steps(shape, at[..., None])
        return at + steps[..., 0] - goal, by[..., 0, :], 1.0 + rate[..., 0]

    # log E is convex: Newton's method from above falls to the solution.
    at = most.copy()
    over, by, rate = above(at)
    capped = over <= 0
    for _ in range(20):
        step = np.where(capped, 0.0, over / np.maximum(rate, 1e-9))
        at = np.maximum(at - step, 0.0)
        over, by, rate = above(at)
        if np.max(np.abs(step), initial=0.0) < 1e-10:
            break
    by = (by_most - by) / np.maximum(rate, 1e-9)[..., None]
    return at, np.where(capped[..., None], by_most, by)


@dataclass(frozen=True, kw_only=True)
class Points:
    """Log batch sizes and log steps of curves, one a row, weights 0 or 1; (R, n) each."""

    x: Array
    y: Array
    weight: Array
    tolerance: float

    def repeat(self, times: int) -> Points:
        """Each row so many times."""
        x, y, weight = (np.repeat(each, times, 0) for each in (self.x, self.y, self.weight))
        return Points(x=x, y=y, weight=weight, tolerance=self.tolerance)

    def take(self, rows: Rows) -> Points:
        x, y, weight = self.x[rows], self.y[rows], self.weight[rows]
        return Points(x=x, y=y, weight=weight, tolerance=self.tolerance)

    def off(self, steps: Array) -> Array:
        """Residuals (R, n) about log (S / S_min) of the points, with the S_min of least squares."""
        return self.centred(self.y - steps)

    def centred(self, values: Array) -> Array:
        """``values`` (R, n) less their mean over the points; 0 where there is none."""
        values = values * self.weight
        mean = values.sum(1) / self.weight.sum(1)
        return np.asarray(values - mean[:, None] * self.weight)


def constrained(
    points: Points, kind: int, at: Array, near: Array | None = None
) -> tuple[Array, Array]:
    """The best shape of each row among those whose quantity ``kind`` is ``at`` (R,).

    ``near``: shapes (R, s, 3) to start from besides the best of a scan. Returns sums of squares
    (R,) and shapes (R, 3).
    """
    starts = [_scanned(points, kind, at)] if near is None else [near]
    start = np.concatenate(starts, 1)
    count = start.shape[1]
    params, sums = _solve(points.repeat(count), kind, np.repeat(at, count), start.reshape(-1, 3))
    best = np.arange(len(at)) * count + sums.reshape(-1, count).argmin(1)
    return sums[best], params[best, :3]


def profile(points: Points, kind: int, places: Array, near: Array) -> tuple[Array, Array]:
    """The profile of a quantity of one curve, a row, at ascending ``places`` (g,), and its shapes
    (g, 3): from the best of a scan and from ``near`` (s, 3), then from the neighbours' shapes."""
    many = points.repeat(len(places))
    start = np.concatenate(
        [_scanned(many, kind, places), np.broadcast_to(near, (len(places), *near.shape))], 1
    )
    sums, shapes = constrained(many, kind, places, start)
    beside = np.stack([np.roll(shapes, 1, 0), np.roll(shapes, -1, 0)], 1)
    second, others = constrained(many, kind, places, beside)
    better = second < sums
    return np.where(better, second, sums), np.where(better[:, None], others, shapes)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The form, fitted to one curve whose minimum of E lies among its batch sizes."""

    points: Points
    """Of one row."""
    sse: float
    shape: Array
    at: float
    """log B at the least E."""
    places: Array
    """Where ``sums`` is the profile of the minimum."""
    sums: Array

    @classmethod
    def of(cls, x: Array, y: Array, tolerance: float) -> Ended:
        """The curve of least squares through points at log batch sizes ``x`` (n,)."""
        points = Points(x=x[None], y=y[None], weight=np.ones((1, len(x))), tolerance=tolerance)
        places = np.linspace(x.min(), x.max(), _PLACES)
        sums, shapes = profile(points, BEST, places, np.zeros((0, 3)))
        order = np.argsort(sums)[: 2 * _STARTS]
        fitted, squares = _solve(points.repeat(len(order)), FREE, places[order], shapes[order])
        best = int(squares.argmin())
        return cls(
            points=points, sse=float(squares[best]), shape=fitted[best, :3],
            at=float(fitted[best, 3]), places=places, sums=sums,
        )  # fmt: skip

    def value(self, kind: int) -> float:
        """The fitted quantity in natural logs."""
        return self.at + float(distance(kind, self.shape[None], self.points.tolerance)[0][0])

    def interval(self, kind: int, top: float) -> tuple[float, float]:
        """The outermost values among the tested batch sizes whose profile is at most ``top``;
        infinite where an end lies outside of them."""
        first, last = self.places[0], self.places[-1]
        fitted = self.value(kind)
        places = np.union1d(self.places, [np.clip(fitted, first, last)])
        sums, shapes = profile(self.points, kind, places, self.shape[None])
        within = np.flatnonzero(sums <= top)
        if not len(within):
            return (-np.inf, first) if fitted <= first else (last, np.inf)
        low, high = -np.inf, np.inf
        if within[0] > 0:
            low = self._end(kind, top, places, sums, shapes, (within[0], within[0] - 1))
        if within[-1] < len(places) - 1:
            high = self._end(kind, top, places, sums, shapes, (within[-1], within[-1] + 1))
        return low, high

    def _end(
        self,
        kind: int,
        top: float,
        places: Array,
        sums: Array,
        shapes: Array,
        bracket: tuple[int, int],
    ) -> float:
        """Where the profile rises to ``top``, within the first and beyond the second place."""
        goal, at = self._root(np.array(top)), list(bracket)
        ends, roots, near = places[at], self._root(sums[at]), shapes[at]
        for _ in range(_ROUNDS):
            grid = np.linspace(ends[0], ends[1], _CELLS + 1)
            start = np.repeat(near[None], _CELLS - 1, 0)
            inner, solved = constrained(self.points.repeat(_CELLS - 1), kind, grid[1:-1], start)
            profiled = np.concatenate([roots[:1], self._root(inner), roots[1:]])
            every = np.concatenate([near[:1], solved, near[1:]])
            cell = int(np.flatnonzero(profiled[:-1] <= goal)[-1])
            ends, roots, near = (each[cell : cell + 2] for each in (grid, profiled, every))
        share = (goal - roots[0]) / max(roots[1] - roots[0], 1e-300)
        return float(ends[0] + np.clip(share, 0.0, 1.0) * (ends[1] - ends[0]))

    def _root(self, sums: Array) -> Array:
        """The signed-root profile, near linear in the quantity."""
        return np.asarray(np.sqrt(np.maximum(sums - self.sse, 0.0)))


def _scanned(points: Points, kind: int, at: Array) -> Array:
    """The best shapes of a scan with a quantity held at ``at`` (R,); (R, s, 3)."""
    shapes = np.tile(_SCAN, (len(at), 1))
    many = points.repeat(len(_SCAN))
    minimum = np.repeat(at, len(_SCAN)) - distance(kind, shapes, points.tolerance)[0]
    steps, _, _ = log_steps(shapes, many.x - minimum[:, None])
    sums = np.square(many.off(steps)).sum(1).reshape(len(at), -1)
    return np.asarray(_SCAN[np.argsort(sums, 1)[:, :_STARTS]])


def _solve(points: Points, kind: int, at: Array, start: Array) -> tuple[Array, Array]:
    """Levenberg-Marquardt from shapes ``start`` (R, 3) with a quantity at ``at`` (R,), or free,
    from a minimum there: parameters (R, 4), the shape and the place of the minimum, and sums of
    squares (R,)."""
    first = np.where(points.weight > 0, points.x, np.inf).min(1)
    last = np.where(points.weight > 0, points.x, -np.inf).max(1)
    low = np.column_stack([np.tile(_LOW, (len(at), 1)), first])
    high = np.column_stack([np.tile(_HIGH, (len(at), 1)), last])

    def fitted(points: Points, at: Array, params: Array) -> tuple[Array, Array]:
        """Residuals (R, n), and derivatives of log steps by the parameters (R, n, 4)."""
        shape, minimum, by_shape = params[:, :3], params[:, 3], np.zeros((len(at), 3))
        if kind != FREE:
            above, by_shape = distance(kind, shape, points.tolerance)
            minimum = at - above
        steps, by, rate = log_steps(shape, points.x - minimum[:, None])
        slopes = np.zeros((*steps.shape, 4))
        slopes[..., :3] = by + rate[..., None] * by_shape[:, None]
        if kind == FREE:
            slopes[..., 3] = -rate
        mean = (slopes * points.weight[..., None]).sum(1) / points.weight.sum(1)[:, None]
        return points.off(steps), (slopes - mean[:, None]) * points.weight[..., None]

    params = np.clip(np.column_stack([start, at]), low, high)
    residual, slopes = fitted(points, at, params)
    sse = np.square(residual).sum(1)
    damping, live = np.full(len(at), 1e-3), np.arange(len(at))
    for _ in range(_ITERATIONS):
        now, across = params[live], slopes[live].transpose(0, 2, 1)
        downhill = (across @ residual[live][..., None])[..., 0]
        free = ~(((now <= low[live]) & (downhill < 0)) | ((now >= high[live]) & (downhill > 0)))
        free[:, 3] &= kind == FREE
        normal = (across @ slopes[live]) * (free[:, :, None] & free[:, None, :])
        scale = np.einsum("rpp->rp", normal).copy()
        np.einsum("rpp->rp", normal)[:] += np.where(free, damping[live, None] * scale + 1e-12, 1.0)
        step = np.linalg.solve(normal, np.where(free, downhill, 0.0)[..., None])[..., 0]
        trial = np.clip(now + np.clip(step, -2.0, 2.0), low[live], high[live])
        rest, rates = fitted(points.take(live), at[live], trial)
        new = np.square(rest).sum(1)
        better = new < sse[live]
        gain = np.where(better, sse[live] - new, 0.0)
        done = better & (gain <= 1e-6 * sse[live] + 1e-18)
        into = live[better]
        params[into], residual[into], slopes[into] = trial[better], rest[better], rates[better]
        sse[into] = new[better]
        damping[live] = np.clip(np.where(better, damping[live] / 9, damping[live] * 7), 1e-9, 1e9)
        live = live[~(done | (damping[live] >= 1e4))]
        if not len(live):
            break
    return params, sse
