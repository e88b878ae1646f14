"""Least squares in log steps for many curves at once, and profile-likelihood intervals by it.

Levenberg-Marquardt on independent rows (Marquardt 1963, doi:10.1137/0111030), freely or with one
quantity held: a few numpy calls on arrays with a leading row dimension, so that a profile
likelihood, which is hundreds of constrained fits, costs as much as a handful. Bounds are kept by
clipping the step and freezing a parameter that pushes against its bound.

The profile of a quantity at q is the least sum of squares among the curves on which the quantity
is q. The interval holds the q with

    profile(q) <= SSE · (1 + F(level; 1, n - p) / (n - p)),

F the quantile of the F distribution, SSE and p of the free curve, n its points (Bates & Watts
1988, Nonlinear Regression Analysis, §6.1): the likelihood-ratio interval for normal noise in log
steps of unknown size. Where the profile never rises to that, the end is open.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.fit.knee import (
    BATCH,
    BEND,
    BENDS,
    FREE,
    SLOPE,
    SLOPES,
    STEPS,
    Array,
    Mask,
    Range,
    Rows,
    given_up,
    hold,
    jacobian,
    log_steps,
)

REACH = np.log(1e6)
"""Distance by which B_crit may lie beyond the tested batch sizes: enough for pure lines to fit."""

_STARTS_BEND = np.log([0.45, 0.7, 1.0, 1.6, 2.8, 5.5])
_STARTS_BATCH = np.array([[-0.3, 0.0, 0.2, 0.4], [0.6, 0.8, 1.0, 1.3]])
"""As shares of the tested range: the best of each row is a start."""

_ITERATIONS = 60

NOISE_FLOOR = 1e-6
"""Least assumed noise in log steps, so that exact curves get intervals of six digits."""

_CELLS = 5
_ROUNDS = 3
"""Rounds of the search for an end, and the cells that each divides the bracket into."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Curves padded to one length: log batch sizes and log steps (R, n), weights 0 or 1.

    ``bent`` and ``sloped`` say in which rows k and a are free (else they are 1); (R,).
    """

    x: Array
    y: Array
    weight: Array
    bent: Mask
    sloped: Mask
    tolerance: float

    @property
    def points(self) -> Array:
        return np.asarray(self.weight.sum(1))

    @property
    def parameters(self) -> Array:
        return np.asarray(2.0 + self.bent + self.sloped)

    @property
    def tested(self) -> Range:
        used = self.weight > 0
        return Range(
            first=np.where(used, self.x, np.inf).min(1),
            last=np.where(used, self.x, -np.inf).max(1),
            tolerance=self.tolerance,
        )

    def take(self, rows: Rows) -> Data:
        return Data(
            x=self.x[rows],
            y=self.y[rows],
            weight=self.weight[rows],
            bent=self.bent[rows],
            sloped=self.sloped[rows],
            tolerance=self.tolerance,
        )


def bounds(data: Data) -> tuple[Array, Array]:
    """Lower and upper bounds of the parameters, (R, 4) each."""
    tested = data.tested
    low = np.full((len(data.x), 4), -np.inf)
    high = np.full((len(data.x), 4), np.inf)
    low[:, BATCH], high[:, BATCH] = tested.first - REACH, tested.last + REACH
    low[:, BEND], high[:, BEND] = np.log(BENDS)
    low[:, SLOPE], high[:, SLOPE] = SLOPES
    return low, high


def fit(data: Data, near: Array | None = None) -> tuple[Array, Array]:
    """The best knee of every curve, as ``constrained`` with nothing held."""
    return constrained(data, np.full(len(data.x), FREE), np.zeros(len(data.x)), near)


def constrained(
    data: Data, kind: Rows, at: Array, near: Array | None = None, *, scan: bool = True
) -> tuple[Array, Array]:
    """The best knee of each row among those whose quantity ``kind`` (R,) is ``at`` (R,).

    ``near``: parameters (R, s, 4) to start from besides a scan over bends and batch sizes.
    Returns parameters (R, 4) and the sum of squares (R,).
    """
    starts = [] if near is None else [near]
    if scan or near is None:
        starts.append(_scan(data, kind, at, most=12 if near is None else 2))
    start = np.concatenate(starts, axis=1)
    count = start.shape[1]
    rows = np.repeat(np.arange(len(data.x)), count)
    params, sse = _solve(data.take(rows), kind[rows], at[rows], start.reshape(-1, 4))
    best = np.arange(len(data.x)) * count + sse.reshape(-1, count).argmin(1)
    return params[best], sse[best]


def residuals(data: Data, params: Array) -> Array:
    """Log steps above the fitted curve (R, n); 0 where there is no point."""
    return (data.y - log_steps(data.x, params)) * data.weight


def _scan(data: Data, kind: Rows, at: Array, *, most: int) -> Array:
    """Starts (R, s, 4): for each bend the best of some small and of some large batch sizes; of
    these the best ``most``."""
    tested = data.tested
    shares = _STARTS_BATCH.ravel()
    bends = _STARTS_BEND if data.bent.any() else np.zeros(1)
    grid = np.zeros((len(data.x), len(bends), len(shares), 4))
    grid[..., SLOPE] = 1.0
    grid[..., BEND] = np.where(data.bent[:, None], bends, 0.0)[..., None]
    span = (tested.last - tested.first)[:, None]
    grid[..., BATCH] = (tested.first[:, None] + shares * span)[:, None]
    rows = np.repeat(np.arange(len(data.x)), len(bends) * len(shares))
    flat, many = grid.reshape(-1, 4), data.take(rows)
    flat, _ = hold(kind[rows], at[rows], flat, tested.take(rows), many.sloped)
    off = residuals(many, flat)
    level = off.sum(1) / many.points
    level[given_up(kind[rows])[:, STEPS]] = 0.0
    flat[:, STEPS] += level
    off = (off - level[:, None]) * many.weight
    shape = (len(data.x), len(bends) * len(_STARTS_BATCH), _STARTS_BATCH.shape[1])
    sums = (off * off).sum(1).reshape(shape)
    best = sums.argmin(2)[..., None, None]
    starts = np.take_along_axis(flat.reshape(*shape, 4), best, axis=2)[:, :, 0]
    order = np.argsort(sums.min(2), axis=1)[:, :most, None]
    return np.take_along_axis(starts, order, axis=1)


def _solve(data: Data, kind: Rows, at: Array, start: Array) -> tuple[Array, Array]:
    tested, (low, high) = data.tested, bounds(data)
    given = given_up(kind)
    free = ~given
    free[:, BEND] &= data.bent
    free[:, SLOPE] &= data.sloped
    low, high = np.where(given, -np.inf, low), np.where(given, np.inf, high)
    now, by = hold(kind, at, np.clip(start, low, high), tested, data.sloped)
    sums = np.square(residuals(data, now)).sum(1)
    damping = np.full(len(sums), 1e-3)
    params, sse = now.copy(), sums.copy()
    # The rows that still move, in arrays of their own; those that have come to rest leave them.
    place, each = given.argmax(1), np.arange(len(sums))
    live = each
    for _ in range(_ITERATIONS):
        fitted, slopes = jacobian(data.x, now)
        off = (data.y - fitted) * data.weight
        if given.any():
            slopes = slopes + slopes[each, :, place][..., None] * by[:, None, :]
        slopes = slopes * data.weight[..., None]
        across = slopes.transpose(0, 2, 1)
        downhill = (across @ off[..., None])[..., 0]
        moving = free & ~(((now <= low) & (downhill < 0)) | ((now >= high) & (downhill > 0)))
        normal = across @ slopes
        normal *= moving[:, :, None] & moving[:, None, :]
        scale = np.einsum("rpp->rp", normal)
        np.einsum("rpp->rp", normal)[:] += np.where(moving, damping[:, None] * scale + 1e-12, 1.0)
        step = np.linalg.solve(normal, np.where(moving, downhill, 0.0)[..., None])[..., 0]
        trial = np.clip(now + np.clip(step, -3.0, 3.0), low, high)
        trial, by_trial = hold(kind, at, trial, tested, data.sloped)
        new = np.square(residuals(data, trial)).sum(1)
        better = new < sums
        done = better & (sums - new <= 1e-7 * sums + 1e-18)
        sums = np.where(better, new, sums)
        now, by = np.where(better[:, None], trial, now), np.where(better[:, None], by_trial, by)
        damping = np.clip(np.where(better, damping / 9, damping * 7), 1e-9, 1e9)
        rests = done | (damping >= 1e4)
        if rests.any():
            params[live[rests]], sse[live[rests]] = now[rests], sums[rests]
            go = np.flatnonzero(~rests)
            if not len(go):
                return params, sse
            data, tested, live, each = data.take(go), tested.take(go), live[go], each[: len(go)]
            kind, at, place, given = kind[go], at[go], place[go], given[go]
            low, high, free = low[go], high[go], free[go]
            now, by, sums, damping = now[go], by[go], sums[go], damping[go]
    params[live], sse[live] = now, sums
    return params, sse


def limit(data: Data, sse: Array, level: float | Array) -> Array:
    """The sum of squares up to which a curve is within the interval of ``level``, one or one a row,
    (R,)."""
    return threshold(data.points, data.parameters, sse, level)


def threshold(points: Array, parameters: Array | int, sse: Array, level: float | Array) -> Array:
    """As ``limit``, of curves of so many points and parameters."""
    from scipy.special import fdtri  # a third of a second to import: not at start

    spare = points - parameters
    floor = points * NOISE_FLOOR**2
    return np.asarray(np.maximum(sse, floor) * (1.0 + fdtri(1.0, spare, level) / spare))


def ends(
    data: Data, kind: Rows, at: Array, params: Array, sse: Array, top: Array, edge: Array
) -> tuple[Array, Mask]:
    """One end of each row's interval: the outermost value between ``at`` and ``edge`` (R,) whose
    profile is at most ``top``.

    ``params`` (R, 4), ``sse``: the free fit. ``at``: where the search starts, at the estimate or
    at the edge that lies between the estimate and it. Returns the end (R,), NaN if even ``edge``
    is within (open); and whether ``at`` itself is beyond the interval already.
    """
    near = params[:, None]
    sums, solved = _many(data, kind, np.stack([at, edge], 1), near)
    beyond = sums[:, 0] > top
    opened = (sums[:, 1] <= top) & ~beyond
    out = np.where(opened, np.nan, at)
    rows = np.flatnonzero(~opened & ~beyond & (at != edge))
    if not len(rows):
        return out, beyond
    data, kind, sse, goal = data.take(rows), kind[rows], sse[rows], _root(top[rows], sse[rows])
    inner, outer, each = at[rows], edge[rows], np.arange(len(rows))
    roots = np.stack([_root(sums[rows, i], sse) for i in (0, 1)], 1)
    guess = np.concatenate([near[rows], solved[rows]], 1)
    for turn in range(_ROUNDS):
        grid = inner[:, None] + np.linspace(0.0, 1.0, _CELLS + 1) * (outer - inner)[:, None]
        sums, solved = _many(data, kind, grid[:, 1:-1], guess, scan=turn == 0)
        root = np.concatenate([roots[:, :1], _root(sums, sse[:, None]), roots[:, 1:]], 1)
        within = root <= goal[:, None]
        within[:, 0], within[:, -1] = True, False
        cell = _CELLS - within[:, ::-1].argmax(1)
        inner, outer = grid[each, cell], grid[each, cell + 1]
        roots = np.stack([root[each, cell], root[each, cell + 1]], 1)
        solved = np.concatenate([guess[:, :1], solved, guess[:, -1:]], 1)
        guess = np.stack([solved[each, cell], solved[each, cell + 1]], 1)
    share = (goal - roots[:, 0]) / np.maximum(roots[:, 1] - roots[:, 0], 1e-300)
    out[rows] = inner + np.clip(share, 0.0, 1.0) * (outer - inner)
    return out, beyond


def _root(sums: Array, sse: Array) -> Array:
    """The signed-root profile (Bates & Watts' tau, up to scale): near linear in the quantity."""
    return np.sqrt(np.maximum(sums - sse, 0.0))


def _many(
    data: Data, kind: Rows, grid: Array, near: Array, *, scan: bool = True
) -> tuple[Array, Array]:
    """Profiles at ``grid`` (R, g), and the curves they belong to (R, g, 4)."""
    width = grid.shape[1]
    rows = np.repeat(np.arange(len(grid)), width)
    params, sums = constrained(data.take(rows), kind[rows], grid.ravel(), near[rows], scan=scan)
    return sums.reshape(grid.shape), params.reshape(*grid.shape, 4)
