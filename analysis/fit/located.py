"""All that is fitted for the regimes of many curves, in few calls.

The fits of ``analysis.fit.least_squares`` take curves as rows of arrays. Rows are independent: to
the last bit a curve's numbers are those that it has alone. Only curves of as many points share
arrays, since a sum over a longer row of zeros may round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from analysis.fit.estimate import BENT_FROM, Estimate, Fitted, estimate, fitted
from analysis.fit.forms import Knees, knee_fits
from analysis.fit.knee import BEND_ITSELF, SLOPE, SLOPE_ITSELF, SLOPES, Array
from analysis.fit.least_squares import Data, constrained, ends, limit, residuals
from analysis.fit.penalty import Penalty, penalty

LACK_OF_FIT = 0.05
"""Level of the lack-of-fit test below which repeated runs are one point a batch size."""

_TOGETHER = 64
"""Curves that share arrays at most: those of more would leave the processor's cache."""

Points = tuple[Array, Array]
"""Log batch sizes and log steps of a curve, (n,) each."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Located:
    """What is fitted to one curve; arrays have one row."""

    points: Points
    answer: Estimate
    lack: float | None
    """The level of the lack-of-fit test (``lack_of_fit``)."""
    penalty: Penalty
    penalized: bool
    straight: bool
    """Whether the bend of the knee cannot be told from 1."""
    knees: Knees
    """The fits of the forms that are knees (``analysis.fit.forms``)."""
    thinned: Fitted | None
    """The curve of every second evaluation, if there is one."""


def located(
    curves: Sequence[Points],
    coarse: Sequence[Points | None],
    grows: Sequence[bool],
    *,
    tolerance: float,
    level: float,
) -> list[Located]:
    """Fit ``curves``, each of three distinct batch sizes at least.

    Args:
        coarse: the same curves on every second evaluation; None where that has no regimes.
        grows: as ``Curve.grows``: such a curve has no small-batch penalty.
        tolerance, level: as ``analysis.fit.regimes.regimes`` has them.
    """
    points = list(curves)
    answers = _estimates(points, tolerance, level)
    lacks = [lack_of_fit(each.fitted) for each in answers]
    scattered = [i for i, lack in enumerate(lacks) if lack is not None and lack < LACK_OF_FIT]
    for i in scattered:
        # What runs of a batch size share would count as often as there are runs: one point a batch
        # size, the mean log steps of its runs.
        x, which, counts = np.unique(points[i][0], return_inverse=True, return_counts=True)
        points[i] = x, np.bincount(which, points[i][1]) / counts
    again = _estimates([points[i] for i in scattered], tolerance, level)
    for i, answer in zip(scattered, again, strict=True):
        answers[i] = answer
    tested = _by_data(answers, lambda data: _each(penalty(data, level=level), len(data.x)))
    penalized = [bool(t.flagged[0]) and not g for t, g in zip(tested, grows, strict=True)]
    steep = [
        i for i, flagged in enumerate(penalized) if flagged and not answers[i].fitted.data.sloped[0]
    ]
    again = _estimates([points[i] for i in steep], tolerance, level, steep=True)
    for i, answer in zip(steep, again, strict=True):
        answers[i] = answer
    straight = _straight(answers, level)
    knees = _by_data(answers, knee_fits)
    thin = [each for each in coarse if each is not None]

    def thinned_fits(places: list[int]) -> list[Fitted]:
        many = fitted(*_rows(thin, places), tolerance=tolerance, level=level)
        return [many.take(np.array([row])) for row in range(len(places))]

    thinned = iter(_together([_shape(each) for each in thin], thinned_fits))
    return [
        Located(
            points=points[i],
            answer=answers[i],
            lack=lacks[i],
            penalty=tested[i],
            penalized=penalized[i],
            straight=straight[i],
            knees=knees[i],
            thinned=None if coarse[i] is None else next(thinned),
        )
        for i in range(len(points))
    ]


def slope(answer: Fitted, level: float) -> tuple[float, float]:
    """The interval of a of one curve, within its bounds."""
    data, params, sse = answer.data, answer.params, answer.sse
    kind, top = np.array([SLOPE_ITSELF]), limit(data, sse, level)

    def end(bound: float) -> float:
        at, _ = ends(data, kind, params[:, SLOPE], params, sse, top, np.array([bound]))
        return bound if np.isnan(at[0]) else float(at[0])

    return end(SLOPES[0]), end(SLOPES[1])


def lack_of_fit(answer: Fitted) -> float | None:
    """The level of the F test of the curve against the scatter of repeated runs (Draper & Smith,
    §2.1), whether batch sizes scatter about a curve more than runs do within a batch size; None
    without repeats, or with too few batch sizes to tell."""
    from scipy.special import fdtrc  # a third of a second to import: not at start

    data = answer.data
    used = data.weight[0] > 0
    x, off = data.x[0][used], residuals(data, answer.params)[0][used]
    _, which = np.unique(x, return_inverse=True)
    counts = np.bincount(which)
    pure_spare = len(x) - len(counts)
    fit_spare = len(counts) - int(data.parameters[0])
    if pure_spare < 1 or fit_spare < 1:
        return None
    means = np.bincount(which, off) / counts
    pure = float(np.square(off - means[which]).sum())
    lack = float((counts * means**2).sum())
    if pure <= 0:
        return None
    return float(fdtrc(fit_spare, pure_spare, (lack / fit_spare) / (pure / pure_spare)))


def _estimates(
    points: Sequence[Points], tolerance: float, level: float, *, steep: bool = False
) -> list[Estimate]:
    """``estimate`` of each curve."""

    def work(places: list[int]) -> list[Estimate]:
        free = np.full(len(places), steep)
        rows = _rows(points, places)
        many = estimate(*rows, tolerance=tolerance, level=level, steep=free if steep else None)
        return [many.take(np.array([row])) for row in range(len(places))]

    return _together([_shape(each) for each in points], work)


def _straight(answers: Sequence[Estimate], level: float) -> list[bool]:
    """Whether a knee of bend 1 is within the interval, where the bend alone is free."""
    curves = [each.fitted for each in answers]
    bent = [i for i, each in enumerate(curves) if each.data.bent[0] and not each.data.sloped[0]]

    def work(places: list[int]) -> list[bool]:
        data = _joined([curves[bent[place]].data for place in places])
        params = np.concatenate([curves[bent[place]].params for place in places])
        sse = np.concatenate([curves[bent[place]].sse for place in places])
        kind = np.full(len(places), BEND_ITSELF)
        _, sums = constrained(data, kind, np.zeros(len(places)), params[:, None])
        within: list[bool] = (sums <= limit(data, sse, level)).tolist()
        return within

    within_interval = _together([curves[i].data.x.shape[1] for i in bent], work)
    straight = [False] * len(answers)
    for i, each in zip(bent, within_interval, strict=True):
        straight[i] = each
    return straight


def _by_data(answers: Sequence[Estimate], work: Callable[[Data], Sequence[T]]) -> list[T]:
    """``work`` on what the curves were fitted to, which gives one item a row."""
    data = [each.fitted.data for each in answers]
    keys = [(each.x.shape[1], bool(each.bent[0])) for each in data]
    return _together(keys, lambda places: work(_joined([data[place] for place in places])))


def _together(keys: Sequence[Hashable], work: Callable[[list[int]], Sequence[T]]) -> list[T]:
    """``work`` on the places of equal keys, ``_TOGETHER`` at most at a time; an item a place."""
    groups: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        groups.setdefault(key, []).append(place)
    by_place: dict[int, T] = {}
    for places in groups.values():
        for start in range(0, len(places), _TOGETHER):
            part = places[start : start + _TOGETHER]
            by_place |= zip(part, work(part), strict=True)
    return [by_place[place] for place in range(len(keys))]


def _shape(points: Points) -> tuple[int, bool]:
    """Curves of one such share arrays: as many points, and all bent, or none (a search starts from
    the bends that any of them may have)."""
    return len(points[0]), len(np.unique(points[0])) >= BENT_FROM


def _rows(points: Sequence[Points], places: Sequence[int]) -> tuple[Array, Array, Array]:
    """Log batch sizes, log steps and weights, (R, n) each."""
    x, y = (np.stack([points[place][i] for place in places]) for i in (0, 1))
    return x, y, np.ones_like(x)


def _joined(rows: Sequence[Data]) -> Data:
    names = ("x", "y", "weight", "bent", "sloped")
    arrays = {name: np.concatenate([getattr(each, name) for each in rows]) for name in names}
    return Data(**arrays, tolerance=rows[0].tolerance)


def _each(tested: Penalty, count: int) -> list[Penalty]:
    return [tested.take(np.array([row])) for row in range(count)]
