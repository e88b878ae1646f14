"""From log batch sizes and log steps to the five quantities with intervals, many curves at once.

The steps, in order: last points that rise off the plateau leave the fit; the slope a is set free
where its own interval excludes 1; each quantity gets a profile-likelihood interval about the free
knee; ends outside the tested batch sizes are opened. ``analysis.fit.regimes`` does this to one
curve and words the answer; ``validation`` does it to thousands and counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.fit import quantities as q
from analysis.fit.knee import Array, log_steps
from analysis.fit.least_squares import Data, Mask, Rows, constrained, fit
from analysis.fit.profile import ends, limit, profile

QUANTITIES = {
    "perfect_scaling_until": q.PERFECT,
    "maximal_parallelism_from": q.MAXIMAL,
    "critical_batch_size": q.CRITICAL,
    "min_steps": q.MIN_STEPS,
    "min_examples": q.MIN_EXAMPLES,
}
BATCH_SIZES = tuple(QUANTITIES)[:3]
"""The quantities that are batch sizes, and so must lie among the tested ones."""

WIDEST = 10.0
"""High over low up to which min_steps, min_examples and critical_batch_size have a value."""

BENT_FROM = 5
"""Distinct batch sizes from which k is free; a can be from one more."""

RISE = 2.0
"""Noise deviations above the plateau at which last points leave the fit."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Curves as they are fitted, one a row."""

    data: Data
    """Weights are 0 where a point left the fit; ``sloped`` where a is not 1."""
    params: Array
    """(R, 4), see ``analysis.fit.knee``."""
    sse: Array
    straight: tuple[Array, Array]
    """Parameters and sum of squares with a = 1, in every row."""
    left_out: Mask
    """Points that rise off the plateau, (R, n)."""

    @property
    def noise(self) -> Array:
        """Standard deviation of log steps about the knee, (R,)."""
        return np.sqrt(self.sse / (self.data.points - self.data.parameters))

    def value(self, name: str) -> Array:
        """The estimate of a quantity in natural logs, wherever it lies."""
        return q.value(QUANTITIES[name], self.params, self.data.tested, self.data.sloped)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Answers, one a row. Batch sizes, steps and examples in natural logs; NaN is null or open."""

    fitted: Fitted
    value: dict[str, Array]
    low: dict[str, Array]
    high: dict[str, Array]


def fitted(x: Array, y: Array, weight: Array, *, tolerance: float, level: float) -> Fitted:
    """Fit every row of log batch sizes ``x`` and log steps ``y`` (R, n) where ``weight`` is 1.

    A row needs three distinct batch sizes at least; with fewer than five k is 1.
    """
    count = _distinct(x, weight)
    sloped = np.zeros(len(x), dtype=bool)
    data = Data(
        x=x, y=y, weight=weight, bent=count >= BENT_FROM, sloped=sloped, tolerance=tolerance
    )
    left_out = _risen(data, count)
    data = replace(data, weight=np.where(left_out, 0.0, weight))
    straight = fit(data)
    params, sse = straight[0].copy(), straight[1].copy()
    rows = _sloped(data, params, sse, level)
    if len(rows):
        sloped = sloped.copy()
        sloped[rows] = True
        data = replace(data, sloped=sloped)
        free = data.take(rows)
        params[rows], sse[rows] = constrained(free, *_no_constraint(free), params[rows, None])
    return Fitted(data=data, params=params, sse=sse, straight=straight, left_out=left_out)


def estimate(x: Array, y: Array, weight: Array, *, tolerance: float, level: float) -> Estimate:
    """``fitted``, and each quantity with its interval."""
    found = fitted(x, y, weight, tolerance=tolerance, level=level)
    straight = replace(found.data, sloped=np.zeros(len(x), dtype=bool))
    value, low, high = _intervals(straight, *found.straight, level)
    rows = np.flatnonzero(found.data.sloped)
    if len(rows):
        # That a differs from 1 is itself an estimate: unless it is far from it, the interval is
        # that of both forms together.
        data, sse = found.data.take(rows), found.sse[rows]
        answers = _intervals(data, found.params[rows], sse, level)
        far = found.straight[1][rows] > limit(data, sse, 1 - (1 - level) / 10)
        for name in QUANTITIES:
            value[name][rows] = answers[0][name]
            both = np.minimum(low[name][rows], answers[1][name])
            low[name][rows] = np.where(far, answers[1][name], both)
            both = np.maximum(high[name][rows], answers[2][name])
            high[name][rows] = np.where(far, answers[2][name], both)
        _never_perfect(found.data, value, low, high)
    return Estimate(fitted=found, value=value, low=low, high=high)


def _distinct(x: Array, weight: Array) -> Array:
    ordered = np.sort(np.where(weight > 0, x, np.inf), axis=1)
    new = np.isfinite(ordered)
    new[:, 1:] &= ordered[:, 1:] > ordered[:, :-1] + 1e-12
    return new.sum(1).astype(np.float64)


def _risen(data: Data, count: Array) -> Mask:
    """Last batch sizes whose mean lies above the curve that the others give, as it stands at the
    last of those, by more than RISE of their noise; the most of them for which that is so of
    each. At most a third, and five others must stay."""
    risen = np.zeros(data.x.shape, dtype=bool)
    used = data.weight > 0
    kept = used.copy()
    lasts: list[tuple[Mask, Array, Array]] = []
    for drop in range(1, int(count.max()) // 3 + 1):
        last = np.where(kept, data.x, -np.inf).max(1, keepdims=True)
        at = kept & (data.x >= last - 1e-12)
        mean = (data.y * at).sum(1) / at.sum(1)
        lasts.append((at, mean, last))
        kept = kept & ~at
        able = np.flatnonzero((count - drop >= BENT_FROM) & (drop <= count // 3))
        if not len(able):
            break
        some = replace(data, weight=kept.astype(np.float64)).take(able)
        params, sse = fit(some)
        noise = np.sqrt(sse / (some.points - some.parameters))
        end = log_steps(some.tested.last[:, None], params)[:, 0]
        above = np.ones(len(able), dtype=bool)
        for _, mean, _ in lasts:
            above &= mean[able] - end > RISE * np.maximum(noise, 1e-6)
        risen[able[above]] = (used & ~kept)[able[above]]
    return risen


def _intervals(
    data: Data, params: Array, sse: Array, level: float
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
    count, tested = len(sse), data.tested
    top = limit(data, sse, level)
    kinds = np.array(list(QUANTITIES.values()))
    many = np.tile(np.arange(count), 2 * len(kinds))
    kind = np.tile(np.repeat(kinds, count), 2)
    hat = {name: q.value(k, params, tested, data.sloped) for name, k in QUANTITIES.items()}
    edges = {name: _edges(name, hat[name], data) for name in QUANTITIES}
    at = [np.clip(hat[name], *edges[name]) for name in QUANTITIES]
    edge = [edges[name][side] for side in (0, 1) for name in QUANTITIES]
    found, beyond = ends(
        data.take(many),
        kind,
        np.concatenate(at * 2),
        params[many],
        sse[many],
        top[many],
        np.concatenate(edge),
    )
    shape = (2, len(kinds), count)
    (lows, highs), (below, above) = found.reshape(shape), beyond.reshape(shape)
    value, low, high = {}, {}, {}
    for i, name in enumerate(QUANTITIES):
        # An interval wholly outside what was searched is known to lie beyond the edge.
        under, over = hat[name] < edges[name][0], hat[name] > edges[name][1]
        low[name] = np.where(under, np.nan, np.where(below[i], at[i], lows[i]))
        high[name] = np.where(over, np.nan, np.where(above[i], at[i], highs[i]))
        value[name] = np.where(under | over, np.nan, hat[name])
    _open_perfect(data, params, top, value, low)
    for name in ("critical_batch_size", "min_steps", "min_examples"):
        wide = ~(high[name] - low[name] <= np.log(WIDEST))
        value[name] = np.where(wide, np.nan, value[name])
        if name != "critical_batch_size":
            # Below lies extrapolation alone; above, the data.
            low[name] = np.where(wide, np.nan, low[name])
    return value, low, high


def _edges(name: str, hat: Array, data: Data) -> tuple[Array, Array]:
    """Where to look for the ends of an interval: at the tested batch sizes; as far down as a
    quantity may reach and still have a value; and up to above every point."""
    tested = data.tested
    if name in BATCH_SIZES:
        return tested.first, tested.last
    points = data.y + data.x if name == "min_examples" else data.y
    most = np.where(data.weight > 0, points, -np.inf).max(1)
    return hat - np.log(WIDEST) - 1e-9, np.maximum(hat, most) + 1.0


def _open_perfect(
    data: Data,
    params: Array,
    top: Array,
    value: dict[str, Array],
    low: dict[str, Array],
) -> None:
    """Perfect scaling was seen only if the smallest batch size is surely within it.

    The yardstick of perfect_scaling_until is the least B·S *tested*, which the smallest batch
    size itself sets: on a curve that is flat from there on it would lie inside the range. So its
    low end is open unless B·S at the smallest batch size is within the tolerance of its own
    asymptote on every curve in the interval.
    """
    tested, name = data.tested, "perfect_scaling_until"
    onset = q.value(q.ONSET, params, tested, data.sloped)
    kind = np.full(len(top), q.ONSET)
    unsure = (onset <= tested.first) | (profile(data, kind, tested.first, params[:, None]) <= top)
    low[name] = np.where(unsure, np.nan, low[name])
    value[name] = np.where(onset < tested.first, np.nan, value[name])


def _never_perfect(
    data: Data, value: dict[str, Array], low: dict[str, Array], high: dict[str, Array]
) -> None:
    """With a slope of its own a curve never scales perfectly, as far down as was tested."""
    name, sloped = "perfect_scaling_until", data.sloped
    value[name] = np.where(sloped, np.nan, value[name])
    low[name] = np.where(sloped, np.nan, low[name])
    high[name] = np.where(sloped, data.tested.first, high[name])


def _sloped(data: Data, params: Array, sse: Array, level: float) -> Rows:
    """Rows whose interval of a excludes 1: with all points, and still without the smallest batch
    size, on which the slope hangs most (one lucky first study tilts it)."""

    def excluded(rows: Rows, some: Data) -> Rows:
        enough = _distinct(some.x, some.weight) > BENT_FROM
        rows, some = rows[enough], some.take(np.flatnonzero(enough))
        if not len(rows):
            return rows
        one, one_sse = constrained(some, *_no_constraint(some), params[rows, None])
        free = replace(some, sloped=np.ones(len(rows), dtype=bool))
        _, free_sse = constrained(free, *_no_constraint(free), one[:, None])
        return rows[one_sse > limit(free, free_sse, level)]

    rows = excluded(np.arange(len(sse)), data)
    some = data.take(rows)
    first = some.x <= some.tested.first[:, None] + 1e-12
    return excluded(rows, replace(some, weight=np.where(first, 0.0, some.weight)))


def _no_constraint(data: Data) -> tuple[Rows, Array]:
    return np.full(len(data.x), q.FREE), np.zeros(len(data.x))
