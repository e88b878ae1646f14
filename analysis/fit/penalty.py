"""A small-batch penalty: whether examples to target rise again at small batch sizes.

E(B) = B·S(B) of such a curve has a minimum, at the best batch size: the one that needs the fewest
examples. There are two forms of it, both with a bend k at the knee:

- *steep*: the knee with a slope a > 1 (``analysis.fit.knee``), E falls as B^(1 - a) up to it;
- *ended*: S = S_min (1 + (B_crit / B)^k)^(1 / k) (1 + (B_0 / B)^c), so that E falls as B^-c up to
  B_0 and is level from there to the knee; c is 0.5, 1 or 1.5.

The test compares the best steep curve with the best on which E does not fall over the tested batch
sizes, of the same noise: a likelihood ratio with noise of unknown size,

    F = (SSE of monotone E - SSE) / (SSE / (n - p)),

one-sided: E that rises more slowly than a knee's is no penalty. The monotone curves are the knees
with a <= 1, and those with a > 1 whose minimum lies at or below the smallest batch size. A curve is
flagged where they are rejected, and the fitted penalty is ``LEAST`` at least.

The best batch size, the end of perfect scaling measured from it, and the critical batch size
E_min / S_min, where the line of perfect scaling from it meets the plateau, have profile-likelihood
intervals (``analysis.fit.least_squares``): the union of those of both forms, except where a form
is excluded at 99 % by the other. In simulation (``validation.penalty``) the interval of the steep
form alone covered too rarely on curves of the ended form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.fit.knee import (
    BATCH,
    BEND,
    BENDS,
    BEST,
    MEETING,
    SLOPE,
    UNTIL,
    Array,
    Mask,
    log_steps,
    value,
)
from analysis.fit.least_squares import Data, constrained, ends, fit, limit

FEWEST = 6
"""Distinct batch sizes that the test takes: with fewer the bend and the slope are not both free,
and a knee sharper than McCandlish's would pass for a penalty."""

SIZE = 0.025
"""One-sided level of the test."""

LEAST = 1.1
"""Fitted examples at the smallest batch size over the fewest, from which it is a penalty: on exact
curves that are not knees (``validation.nqm``) the slope of the fitted knee alone makes 1.07."""

_STARTS = tuple((slope, bend) for slope in (1.1, 1.3, 1.7) for bend in (0.6, 1.2, 3.0))

_EXPONENTS = (0.5, 1.0, 1.5)
_CELLS = 12, 20, 97
"""Bends, distances of B_crit, and places of the minimum in the grid of the ended form."""

Ends = tuple[Array, Array, Array]
"""Value, low and high of a batch size in natural logs, NaN where unknown or open; (R,) each."""


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """The test of each curve, one a row."""

    flagged: Mask
    level: Array
    """The one-sided level at which a monotone E is rejected; 1 where it falls nowhere, or was not
    tested; (R,)."""
    best: Ends
    """The best batch size; all NaN where it is not flagged, as in the others."""
    until: Ends
    """The end of perfect scaling: the largest B with E(B) <= (1 + tolerance) times the least E, at
    most ``critical``."""
    critical: Ends
    """The critical batch size, E_min / S_min: the two forms' own B_crit are of asymptotes of other
    slopes, and cannot be compared with those of other curves."""
    factor: Array
    """Fitted E at the smallest batch size over the least E; 1 where no monotone E is rejected;
    (R,)."""


def penalty(data: Data, *, level: float = 0.9) -> Penalty:
    """Test each row of ``data``, whose weights are 0 where a point left the fit.

    Args:
        level: coverage of the intervals.
    """
    from scipy.special import fdtrc  # a third of a second to import: not at start

    count = len(data.x)
    p, factor = np.ones(count), np.ones(count)
    best, until, critical = _unknown(count), _unknown(count), _unknown(count)
    rows = np.flatnonzero(_distinct(data) >= FEWEST)
    if len(rows):
        free = _steep(data.take(rows))
        flat, flat_sse = fit(replace(free, sloped=np.zeros(len(rows), dtype=bool)))
        params, sse = fit(free, np.concatenate([flat[:, None], _starts(free)], 1))
        first = free.tested.first
        at = value(BEST, params, free.tested, free.sloped)
        kind = np.full(len(rows), BEST)
        _, turned = constrained(free, kind, first, params[:, None], scan=False)
        spare = free.points - free.parameters
        least = np.maximum(sse, free.points * 1e-12)  # an exact curve
        ratio = np.maximum(np.minimum(flat_sse, turned) - least, 0.0) / (least / spare)
        falls = (params[:, SLOPE] > 1.0) & (at > first)
        p[rows] = np.where(falls, fdtrc(1.0, spare, ratio) / 2, 1.0)
        lowest = np.stack([first, np.clip(at, first, free.tested.last)], 1)
        examples = lowest + log_steps(lowest, params)
        factor[rows] = np.where(p[rows] < SIZE, np.exp(examples[:, 0] - examples[:, 1]), 1.0)
        for i in np.flatnonzero(factor[rows] >= LEAST):
            place, row = rows[i], np.array([i])
            answers = _intervals(free.take(row), params[row], sse[row], level)
            for into, ends_of in zip((best, until, critical), answers, strict=True):
                for side, end in zip(into, ends_of, strict=True):
                    side[place] = end
    return Penalty(
        flagged=factor >= LEAST, level=p, best=best, until=until, critical=critical, factor=factor
    )


def _unknown(count: int) -> Ends:
    return np.full(count, np.nan), np.full(count, np.nan), np.full(count, np.nan)


def _steep(data: Data) -> Data:
    """``data`` with bend and slope free."""
    free = np.ones(len(data.x), dtype=bool)
    return replace(data, bent=free, sloped=free)


def _intervals(
    data: Data, params: Array, sse: Array, level: float
) -> list[tuple[float, float, float]]:
    """``Penalty.best``, ``until`` and ``critical`` of one curve, a row of ``data``, from the fit of
    its steep form."""
    ended = _Ended.of(data)
    top, far = limit(data, np.array([sse[0], ended.sse]), level), 1 - (1 - level) / 10
    wide = limit(data, np.array([min(sse[0], ended.sse)]), far)[0]
    first, last = float(data.tested.first[0]), float(data.tested.last[0])
    answers = []
    for kind, cells in ((BEST, ended.best), (UNTIL, ended.until), (MEETING, ended.critical)):
        at = float(value(kind, params, data.tested, data.sloped)[0])
        intervals = []
        if sse[0] <= wide:
            intervals.append(_profile(data, kind, at, params, sse, top[:1]))
        if ended.sse <= wide:
            within = cells[ended.sums <= top[1]]
            intervals.append((float(within.min()), float(within.max())))
            if ended.sse < sse[0]:
                at = float(cells[ended.sums.argmin()])
        low, high = min(low for low, _ in intervals), max(high for _, high in intervals)
        answers.append(
            (
                at if first <= at <= last else np.nan,
                # At the edge of the tested batch sizes an end is open; beyond the other edge it is
                # there.
                np.nan if low <= first else min(low, last),
                np.nan if high >= last else max(high, first),
            )
        )
    return answers


def _profile(
    data: Data, kind: int, at: float, params: Array, sse: Array, top: Array
) -> tuple[float, float]:
    """The ends of a profile-likelihood interval, infinite where they lie outside the tested batch
    sizes."""
    tested = data.tested
    inside = np.clip(np.array([at]), tested.first, tested.last)
    sides = []
    for edge, sign in ((tested.first, -1.0), (tested.last, 1.0)):
        end, beyond = ends(data, np.array([kind]), inside, params, sse, top, edge)
        out = sign * (at - inside[0]) > 0 or np.isnan(end[0])
        sides.append(sign * np.inf if out and not beyond[0] else float(end[0]))
    return sides[0], sides[1]


@dataclass(frozen=True)
class _Ended:
    """The ended form of one curve on a grid of its parameters: the minimum of E, the distance d of
    log B_crit from there, k and c. S_min is the best of each cell."""

    sums: Array
    """Sums of squares, (m,)."""
    best: Array
    """The log batch size of least E, (m,)."""
    until: Array
    """Where E is 1 + tolerance times that, at most ``critical``; (m,)."""
    critical: Array
    """log(E_min / S_min), (m,)."""

    @property
    def sse(self) -> float:
        return float(self.sums.min())

    @classmethod
    def of(cls, data: Data) -> _Ended:
        used = data.weight[0] > 0
        x, y = data.x[0][used], data.y[0][used]
        bends, distances, places = _CELLS
        grid = np.meshgrid(
            np.geomspace(*BENDS, bends), np.geomspace(0.02, 10.0, distances), _EXPONENTS
        )
        shape = _Shape(*(each.ravel() for each in grid))
        at = np.linspace(x.min(), x.max(), places)
        off = y - shape.log_steps((x - at[:, None])[:, None])
        off -= off.mean(-1, keepdims=True)
        critical = shape.log_steps(np.zeros((bends * distances * len(_EXPONENTS), 1)))[:, 0]
        until = np.minimum(shape.until(data.tolerance), critical)
        return cls(
            np.square(off).sum(-1).ravel(),
            np.repeat(at, len(until)),
            (at[:, None] + until).ravel(),
            (at[:, None] + critical).ravel(),
        )


@dataclass(frozen=True)
class _Shape:
    """Curves of the ended form with E least at batch size 1 and S_min 1; (s,) each."""

    bend: Array
    distance: Array
    """log B_crit."""
    exponent: Array

    def log_steps(self, at: Array) -> Array:
        """log S at log batch sizes ``at`` (…, n); (…, s, n).

        d log E / d log B = sigmoid(k (log B - log B_crit)) - c sigmoid(c (log B_0 - log B)) is 0
        at the minimum, which gives B_0.
        """
        k, c = self.bend[:, None], self.exponent[:, None]
        distance = self.distance[:, None]
        share = 1.0 / (1.0 + np.exp(k * distance)) / c
        below = np.log(share / (1.0 - share)) / c
        knee = np.logaddexp(0.0, k * (distance - at)) / k
        return np.asarray(knee + np.logaddexp(0.0, c * (below - at)))

    def until(self, tolerance: float) -> Array:
        """log B above the minimum at which E is 1 + tolerance times it, by bisection; (s,)."""
        low, high = np.zeros((len(self.bend), 1)), np.full((len(self.bend), 1), 40.0)
        goal = self.log_steps(low) + np.log1p(tolerance)
        for _ in range(40):
            middle = (low + high) / 2
            under = middle + self.log_steps(middle) <= goal
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        return np.asarray(low[:, 0])


def _starts(data: Data) -> Array:
    """Curves with a minimum of E inside of the tested batch sizes, (R, s, 4)."""
    tested = data.tested
    starts = np.zeros((len(data.x), 2 * len(_STARTS), 4))
    for i, (slope, bend) in enumerate(_STARTS):
        for j, share in enumerate((0.3, 0.7)):
            row = starts[:, 2 * i + j]
            row[:, SLOPE], row[:, BEND] = slope, np.log(bend)
            row[:, BATCH] = tested.first + share * (tested.last - tested.first)
    starts[:, :, 0] = (data.y * data.weight).sum(1)[:, None] / data.points[:, None]
    return starts


def _distinct(data: Data) -> Array:
    ordered = np.sort(np.where(data.weight > 0, data.x, np.inf), axis=1)
    new = np.isfinite(ordered)
    new[:, 1:] &= ordered[:, 1:] > ordered[:, :-1] + 1e-12
    return np.asarray(new.sum(1))
