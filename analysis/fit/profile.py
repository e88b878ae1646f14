"""Profile-likelihood intervals of the quantities read off a knee, for many curves at once.

The profile of a quantity at q is the least sum of squares among the curves on which the quantity
is q. The interval holds the q with

    profile(q) <= SSE · (1 + F(level; 1, n - p) / (n - p)),

F the quantile of the F distribution, SSE and p of the free curve, n its points (Bates & Watts
1988, Nonlinear Regression Analysis, §6.1): the likelihood-ratio interval for normal noise in log
steps of unknown size. Where the profile never rises to that, the end is open.
"""

from __future__ import annotations

import numpy as np

from analysis.fit.knee import Array
from analysis.fit.least_squares import Data, Mask, Rows, constrained

NOISE_FLOOR = 1e-6
"""Least noise in log steps that is believed: exact curves get intervals of six digits."""

_CELLS = 5
_ROUNDS = 3


def limit(data: Data, sse: Array, level: float) -> Array:
    """The sum of squares up to which a curve is within the interval, (R,)."""
    from scipy.special import fdtri  # a third of a second to import: not at start

    spare = data.points - data.parameters
    floor = data.points * NOISE_FLOOR**2
    return np.maximum(sse, floor) * (1.0 + fdtri(1.0, spare, level) / spare)


def profile(data: Data, kind: Rows, at: Array, near: Array | None = None) -> Array:
    """The least sum of squares with quantity ``kind`` (R,) at ``at`` (R,)."""
    return constrained(data, kind, at, near)[1]


def ends(
    data: Data, kind: Rows, at: Array, params: Array, sse: Array, top: Array, edge: Array
) -> tuple[Array, Mask]:
    """One end of each row's interval: the outermost value between ``at`` and ``edge`` (R,) whose
    profile is at most ``top``.

    ``params`` (R, 4), ``sse``: the free fit. ``at``: where the search starts, at the estimate or
    at the edge that lies between the estimate and it. Returns the end (R,), NaN if even ``edge``
    is within (open); and whether ``at`` itself is beyond the interval already.
    """
    count = len(at)
    near = params[:, None]
    first = _many(data, kind, np.stack([at, edge], 1), near)
    beyond = first[0][:, 0] > top
    opened = (first[0][:, 1] <= top) & ~beyond
    out = np.where(opened, np.nan, at)
    rows = np.flatnonzero(~opened & ~beyond & (at != edge))
    inner, outer = at[rows], edge[rows]
    roots = np.stack([_root(first[0][rows, i], sse[rows]) for i in (0, 1)], 1)
    guess = np.concatenate([near[rows], first[1][rows]], 1)
    for turn in range(_ROUNDS if len(rows) else 0):
        steps = np.linspace(0.0, 1.0, _CELLS + 1)
        grid = inner[:, None] + steps * (outer - inner)[:, None]
        some = data.take(rows)
        inside, found = _many(some, kind[rows], grid[:, 1:-1], guess, scan=turn == 0)
        root = np.concatenate([roots[:, :1], _root(inside, sse[rows][:, None]), roots[:, 1:]], 1)
        within = root <= _root(top[rows], sse[rows])[:, None]
        within[:, 0], within[:, -1] = True, False
        cell = _CELLS - within[:, ::-1].argmax(1)
        each = np.arange(len(rows))
        inner, outer = grid[each, cell], grid[each, cell + 1]
        roots = np.stack([root[each, cell], root[each, cell + 1]], 1)
        solved = np.concatenate([guess[:, :1], found, guess[:, -1:]], 1)
        guess = np.stack([solved[each, cell], solved[each, cell + 1]], 1)
    if len(rows):
        goal = _root(top[rows], sse[rows])
        share = (goal - roots[:, 0]) / np.maximum(roots[:, 1] - roots[:, 0], 1e-300)
        out[rows] = inner + np.clip(share, 0.0, 1.0) * (outer - inner)
    assert len(out) == count
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
