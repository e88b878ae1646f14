"""From log batch sizes and log steps to the five quantities with intervals, many curves at once.

The steps, in order: last points that rise off the plateau leave the fit; the slope a is set free
where its own interval excludes 1; each quantity gets a profile-likelihood interval about the free
knee; ends outside the tested batch sizes are opened. ``analysis.fit.regimes`` does this to one
curve and writes its notes; ``validation`` does it to thousands and counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analysis.fit.knee import BATCH_SIZES, ONSET, QUANTITIES, Array, Mask, Rows, log_steps, value
from analysis.fit.least_squares import Data, constrained, ends, fit, limit

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

    def take(self, rows: Rows) -> Fitted:
        return Fitted(
            data=self.data.take(rows),
            params=self.params[rows],
            sse=self.sse[rows],
            straight=(self.straight[0][rows], self.straight[1][rows]),
            left_out=self.left_out[rows],
        )

    def value(self, name: str) -> Array:
        """The estimate of a quantity in natural logs, wherever it lies."""
        return value(QUANTITIES[name], self.params, self.data.tested, self.data.sloped)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Values and intervals, one a row. Batch sizes, steps and examples in natural logs; NaN is null
    or open."""

    fitted: Fitted
    value: dict[str, Array]
    low: dict[str, Array]
    high: dict[str, Array]

    def take(self, rows: Rows) -> Estimate:
        value, low, high = (
            {name: each[rows] for name, each in side.items()}
            for side in (self.value, self.low, self.high)
        )
        return Estimate(fitted=self.fitted.take(rows), value=value, low=low, high=high)


def fitted(
    x: Array,
    y: Array,
    weight: Array,
    *,
    tolerance: float,
    level: float,
    steep: Mask | None = None,
) -> Fitted:
    """Fit every row of log batch sizes ``x`` and log steps ``y`` (R, n) where ``weight`` is 1.

    A row needs three distinct batch sizes at least; with fewer than five k is 1. In rows of
    ``steep`` (R,) a is free whatever its interval.
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
    if steep is not None:
        rows = np.union1d(rows, np.flatnonzero(steep))
    if len(rows):
        sloped = sloped.copy()
        sloped[rows] = True
        data = replace(data, sloped=sloped)
        params[rows], sse[rows] = fit(data.take(rows), params[rows, None])
    return Fitted(data=data, params=params, sse=sse, straight=straight, left_out=left_out)


def estimate(
    x: Array,
    y: Array,
    weight: Array,
    *,
    tolerance: float,
    level: float,
    steep: Mask | None = None,
) -> Estimate:
    """``fitted``, and each quantity with its interval."""
    curves = fitted(x, y, weight, tolerance=tolerance, level=level, steep=steep)
    return intervals(curves, level)


def intervals(curves: Fitted, level: float | Array) -> Estimate:
    """Each quantity of fitted curves with its interval; ``level``: one, or one a row (R,)."""
    levels = np.broadcast_to(np.asarray(level, dtype=float), curves.sse.shape)
    straight = replace(curves.data, sloped=np.zeros(len(levels), dtype=bool))
    value, low, high = _intervals(straight, *curves.straight, levels)
    sloped = curves.data.sloped
    rows = np.flatnonzero(sloped)
    if len(rows):
        # That a differs from 1 is itself an estimate: unless it is far from it, the interval is
        # that of both forms together.
        data, sse = curves.data.take(rows), curves.sse[rows]
        answers = _intervals(data, curves.params[rows], sse, levels[rows])
        far = curves.straight[1][rows] > limit(data, sse, 1 - (1 - levels[rows]) / 10)
        for name in QUANTITIES:
            value[name][rows] = answers[0][name]
            both = np.minimum(low[name][rows], answers[1][name])
            low[name][rows] = np.where(far, answers[1][name], both)
            both = np.maximum(high[name][rows], answers[2][name])
            high[name][rows] = np.where(far, answers[2][name], both)
        # With a slope of its own a curve never scales perfectly, as far down as was tested.
        name = "perfect_scaling_until"
        value[name] = np.where(sloped, np.nan, value[name])
        low[name] = np.where(sloped, np.nan, low[name])
        high[name] = np.where(sloped, curves.data.tested.first, high[name])
    return Estimate(fitted=curves, value=value, low=low, high=high)


def _distinct(x: Array, weight: Array) -> Array:
    ordered = np.sort(np.where(weight > 0, x, np.inf), axis=1)
    new = np.isfinite(ordered)
    new[:, 1:] &= ordered[:, 1:] > ordered[:, :-1] + 1e-12
    return new.sum(1).astype(np.float64)


def _risen(data: Data, count: Array) -> Mask:
    """Last batch sizes whose mean lies above the curve that the others give, as it stands at the
    last of those, by more than RISE of their noise; as many as this holds for. At most a third
    leave the fit, and five others must stay."""
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
        rest = replace(data, weight=kept.astype(np.float64)).take(able)
        params, sse = fit(rest)
        noise = np.sqrt(sse / (rest.points - rest.parameters))
        end = log_steps(rest.tested.last[:, None], params)[:, 0]
        above = np.ones(len(able), dtype=bool)
        for _, mean, _ in lasts:
            above &= mean[able] - end > RISE * np.maximum(noise, 1e-6)
        risen[able[above]] = (used & ~kept)[able[above]]
    return risen


def _intervals(
    data: Data, params: Array, sse: Array, level: Array
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
    """Values and the low and high ends of the quantities, by their names, (R,) each."""
    count, tested = len(sse), data.tested
    top = limit(data, sse, level)
    kinds = np.array(list(QUANTITIES.values()))
    estimates = {
        name: value(kind, params, tested, data.sloped) for name, kind in QUANTITIES.items()
    }
    edges = {name: _edges(name, estimates[name], data) for name in QUANTITIES}
    starts = [np.clip(estimates[name], *edges[name]) for name in QUANTITIES]
    rows = np.tile(np.arange(count), 2 * len(kinds))
    ends_of, beyond = ends(
        data.take(rows),
        np.tile(np.repeat(kinds, count), 2),
        np.concatenate(starts * 2),
        params[rows],
        sse[rows],
        top[rows],
        np.concatenate([edges[name][side] for side in (0, 1) for name in QUANTITIES]),
    )
    shape = (2, len(kinds), count)
    (lows, highs), (below, above) = ends_of.reshape(shape), beyond.reshape(shape)
    values, low, high = {}, {}, {}
    for i, name in enumerate(QUANTITIES):
        # An interval wholly outside what was searched is known to lie beyond the edge.
        under, over = estimates[name] < edges[name][0], estimates[name] > edges[name][1]
        low[name] = np.where(under, np.nan, np.where(below[i], starts[i], lows[i]))
        high[name] = np.where(over, np.nan, np.where(above[i], starts[i], highs[i]))
        values[name] = np.where(under | over, np.nan, estimates[name])
    # Perfect scaling was seen only if the smallest batch size is surely within it. The yardstick of
    # perfect_scaling_until is the least B·S *tested*, which the smallest batch size itself sets: on
    # a curve that is flat from there on it would lie inside the range. So its low end is open
    # unless B·S at the smallest batch size is within the tolerance of its asymptote on every curve
    # in the interval.
    name = "perfect_scaling_until"
    onset = value(ONSET, params, tested, data.sloped)
    _, sums = constrained(data, np.full(count, ONSET), tested.first, params[:, None])
    low[name] = np.where((onset <= tested.first) | (sums <= top), np.nan, low[name])
    values[name] = np.where(onset < tested.first, np.nan, values[name])
    for name in ("critical_batch_size", "min_steps", "min_examples"):
        wide = ~(high[name] - low[name] <= np.log(WIDEST))
        values[name] = np.where(wide, np.nan, values[name])
        if name != "critical_batch_size":
            # Below lies extrapolation alone; above, the data.
            low[name] = np.where(wide, np.nan, low[name])
    return values, low, high


def _edges(name: str, estimates: Array, data: Data) -> tuple[Array, Array]:
    """Between what values the ends of an interval are searched: the tested batch sizes; or from as
    far down as a quantity may reach and still have a value up to above every point."""
    tested = data.tested
    if name in BATCH_SIZES:
        return tested.first, tested.last
    points = data.y + data.x if name == "min_examples" else data.y
    most = np.where(data.weight > 0, points, -np.inf).max(1)
    return estimates - np.log(WIDEST) - 1e-9, np.maximum(estimates, most) + 1.0


def _sloped(data: Data, params: Array, sse: Array, level: float) -> Rows:
    """Rows whose interval of a excludes 1: with all points, and still without the smallest batch
    size, on which the slope hangs most (one lucky first study tilts it)."""

    def excluded(rows: Rows, data: Data) -> Rows:
        enough = _distinct(data.x, data.weight) > BENT_FROM
        rows, data = rows[enough], data.take(np.flatnonzero(enough))
        if not len(rows):
            return rows
        straight, straight_sse = fit(data, params[rows, None])
        free = replace(data, sloped=np.ones(len(rows), dtype=bool))
        _, free_sse = fit(free, straight[:, None])
        return rows[straight_sse > limit(free, free_sse, level)]

    rows = excluded(np.arange(len(sse)), data)
    rest = data.take(rows)
    first = rest.x <= rest.tested.first[:, None] + 1e-12
    return excluded(rows, replace(rest, weight=np.where(first, 0.0, rest.weight)))
