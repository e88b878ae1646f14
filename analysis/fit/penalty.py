"""A small-batch penalty: whether examples to target rise again at small batch sizes.

E(B) = B·S(B) of such a curve has a minimum, at the best batch size: the one that needs the fewest
examples. There are two forms of it, both with a bend k at the knee:

- *steep*: the knee with a slope a > 1 (``analysis.fit.knee``), E falls as B^(1 - a) up to it;
- *ended*: S = S_min (1 + (B_crit / B)^k)^(1 / k) (1 + (B_0 / B)^c) (``analysis.fit.ended``), so
  that E falls as B^-c up to B_0 and is level from there to the knee.

The test compares the best steep curve with the best on which E does not fall over the tested batch
sizes, of the same noise: a likelihood ratio with noise of unknown size,

    F = (SSE of monotone E - SSE) / (SSE / (n - p)),

one-sided: E that rises more slowly than a knee's is no penalty. The monotone curves are the knees
with a <= 1, and those with a > 1 whose minimum lies at or below the smallest batch size. A curve is
flagged where they are rejected, and the fitted penalty is ``LEAST`` at least.

The best batch size, the end of perfect scaling measured from it, and the critical batch size
E_min / S_min, where the line of perfect scaling from it meets the plateau, have profile-likelihood
intervals in which the form is unknown too, a parameter of two values (discrete profiling: Dauncey,
Kenzie, Wardle & Davies 2015, J. Instrum. 10 P04015, arXiv:1408.6865). The profile of a quantity is
the lower one of both forms, -2 log likelihood n log(SSE) of a form with p parameters counted as
n log(SSE) + p; the interval holds what lies at most n log(1 + F(level; 1, n - 5) / (n - 5)) above
the least, with the 5 parameters of the wider form. Values are those of the steep form, which is
drawn, unless it lies outside of the interval: in simulation they were nearer to the truth than
those of the better form. ``validation.penalty`` has the coverage, also on curves of a third form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.fit.ended import PARAMETERS, Ended
from analysis.fit.knee import (
    BATCH,
    BEND,
    BEST,
    MEETING,
    SLOPE,
    UNTIL,
    Array,
    Mask,
    Rows,
    log_steps,
    value,
)
from analysis.fit.least_squares import Data, constrained, ends, fit, threshold

FEWEST = 6
"""Distinct batch sizes that the test takes: with fewer the bend and the slope are not both free,
and a knee sharper than McCandlish's would pass for a penalty."""

SIZE = 0.025
"""One-sided level of the test."""

LEAST = 1.1
"""Fitted examples at the smallest batch size over the fewest, from which it is a penalty: on exact
curves that are not knees (``validation.nqm``) the slope of the fitted knee alone makes 1.07."""

_STARTS = tuple((slope, bend) for slope in (1.1, 1.3, 1.7) for bend in (0.6, 1.2, 3.0))

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

    def take(self, rows: Rows) -> Penalty:
        best, until, critical = (
            (value[rows], low[rows], high[rows])
            for value, low, high in (self.best, self.until, self.critical)
        )
        return Penalty(
            flagged=self.flagged[rows],
            level=self.level[rows],
            best=best,
            until=until,
            critical=critical,
            factor=self.factor[rows],
        )


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
    used, count = data.weight[0] > 0, data.points[0]
    ended = Ended.of(data.x[0][used], data.y[0][used], data.tolerance)
    # SSE of the steep form as it compares with that of the other, of one parameter more.
    handicap = float(np.exp((data.parameters[0] - PARAMETERS) / count))
    least = np.array([min(sse[0] * handicap, ended.sse)])
    top = threshold(data.points, PARAMETERS, least, level)
    first, last = float(data.tested.first[0]), float(data.tested.last[0])
    answers = []
    for kind in (BEST, UNTIL, MEETING):
        at = float(value(kind, params, data.tested, data.sloped)[0])
        intervals = []
        if sse[0] * handicap <= top[0]:
            intervals.append(_profile(data, kind, at, params, sse, top / handicap))
        else:
            at = ended.value(kind)
        if ended.sse <= top[0]:
            intervals.append(ended.interval(kind, float(top[0])))
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
