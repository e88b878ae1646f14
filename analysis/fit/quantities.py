"""The quantities read off a knee: each as a function of the parameters, and as a constraint.

A profile likelihood holds one quantity at a value and lets the rest of the curve adapt. That is
done here by giving up one parameter: the *slaved* one is a function of the quantity's value and
of the other parameters, with known derivatives, so that one least-squares solver serves all.

Rows are independent: ``kind`` may differ from row to row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.fit.knee import BATCH, BEND, SLOPE, STEPS, Array, excess, jacobian, least_examples_at

CRITICAL, MIN_STEPS, MIN_EXAMPLES, PERFECT, MAXIMAL, ONSET, SLOPE_ITSELF, BEND_ITSELF = range(8)
"""Kinds. ONSET is where E passes (1 + tolerance) S_min B_crit: the end of perfect scaling if E's
own asymptote, rather than the least E tested, is the yardstick."""

FREE = -1

_SLAVE = {
    CRITICAL: BATCH,
    MIN_STEPS: STEPS,
    MIN_EXAMPLES: STEPS,
    PERFECT: BATCH,
    MAXIMAL: BATCH,
    ONSET: BATCH,
    SLOPE_ITSELF: SLOPE,
    BEND_ITSELF: BEND,
}


@dataclass(frozen=True, kw_only=True)
class Range:
    """What is tested, a row each: logs of the smallest and largest batch size, and tolerance."""

    first: Array
    last: Array
    tolerance: float

    def take(self, rows: NDArray[np.intp]) -> Range:
        return Range(first=self.first[rows], last=self.last[rows], tolerance=self.tolerance)


def value(kind: int, params: Array, tested: Range, sloped: NDArray[np.bool_]) -> Array:
    """The quantity in natural logarithms (slopes as they are), one a row of ``params`` (R, 4).

    ``sloped``: the row's a is free, so that B·S has no asymptote and min_examples is the least
    fitted B·S over the tested range; with a = 1 it is S_min B_crit.
    """
    over, _, half = excess(params, tested.tolerance)
    if kind == MIN_STEPS:
        return params[:, STEPS]
    if kind == MIN_EXAMPLES:
        at = least_examples_at(params, tested.first, tested.last)
        return np.where(
            sloped,
            at + jacobian(at[:, None], params)[0][:, 0],
            params[:, STEPS] + params[:, BATCH],
        )
    if kind == MAXIMAL:
        return params[:, BATCH] + half
    if kind == ONSET:
        return params[:, BATCH] - half
    if kind == PERFECT:
        # B^k = (1 + tolerance)^k (B_first^k + B_crit^k) - B_crit^k, never beyond B_crit.
        k = np.exp(params[:, BEND])
        grown = k * (np.log1p(tested.tolerance) + tested.first)
        end = np.logaddexp(grown, over + k * params[:, BATCH]) / k
        return np.minimum(end, params[:, BATCH])
    return params[:, {CRITICAL: BATCH, SLOPE_ITSELF: SLOPE, BEND_ITSELF: BEND}[kind]]


def slaved(kind: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which parameter each row gives up, (R, 4)."""
    out = np.zeros((len(kind), 4), dtype=bool)
    for each, place in _SLAVE.items():
        out[kind == each, place] = True
    return out


def hold(
    kind: NDArray[np.intp], at: Array, params: Array, tested: Range, sloped: NDArray[np.bool_]
) -> tuple[Array, Array]:
    """``params`` (R, 4) with each row's slaved parameter set so that its quantity is ``at`` (R,),
    and that parameter's derivatives by the others (R, 4)."""
    held = params.copy()
    by = np.zeros_like(params)
    for each in np.unique(kind):
        rows = np.flatnonzero(kind == each)
        if each in _CONSTRAINTS:
            new, slopes = _CONSTRAINTS[each](
                at[rows], params[rows], tested.take(rows), sloped[rows]
            )
            held[rows, _SLAVE[each]] = new
            by[rows] = slopes
        elif each != FREE:
            held[rows, _SLAVE[each]] = at[rows]
    return held, by


def _min_examples(
    at: Array, params: Array, tested: Range, sloped: NDArray[np.bool_]
) -> tuple[Array, Array]:
    where = least_examples_at(params, tested.first, tested.last)
    fitted, slopes = jacobian(where[:, None], params)
    # At the least E the place's own movement does not matter (or it stands at an end).
    by = np.where(sloped[:, None], -slopes[:, 0], [0.0, -1.0, 0.0, 0.0])
    by[:, STEPS] = 0.0
    rest = where + fitted[:, 0] - params[:, STEPS]
    return at - np.where(sloped, rest, params[:, BATCH]), by


def _distance(sign: float, at: Array, params: Array, tolerance: float) -> tuple[Array, Array]:
    """log B_crit when it lies ``sign`` half widths from ``at``."""
    over, over_by_bend, half = excess(params, tolerance)
    wide = over < 0
    scale = params[:, SLOPE] * np.exp(params[:, BEND])
    by = np.zeros_like(params)
    by[:, BEND] = np.where(wide, sign * (over - over_by_bend) / scale, 0.0)
    by[:, SLOPE] = -sign * half / params[:, SLOPE]
    return at + sign * half, by


def _maximal(at: Array, params: Array, tested: Range, _: NDArray[np.bool_]) -> tuple[Array, Array]:
    return _distance(-1.0, at, params, tested.tolerance)


def _onset(at: Array, params: Array, tested: Range, _: NDArray[np.bool_]) -> tuple[Array, Array]:
    return _distance(1.0, at, params, tested.tolerance)


def _perfect(at: Array, params: Array, tested: Range, _: NDArray[np.bool_]) -> tuple[Array, Array]:
    over, over_by_bend, _half = excess(params, tested.tolerance)
    k = np.exp(params[:, BEND])
    gap = np.minimum(k * (np.log1p(tested.tolerance) + tested.first - at), -1e-12)
    beyond = (np.log(-np.expm1(gap)) - over) / k
    first = gap * np.exp(gap) / np.expm1(gap)
    capped = (gap >= -1e-12) | (over >= 0) | (beyond <= 0)
    by = np.zeros_like(params)
    by[:, BEND] = np.where(capped, 0.0, (first - over_by_bend) / k - beyond)
    return np.where(capped, at, at + beyond), by


_CONSTRAINTS = {
    MIN_EXAMPLES: _min_examples,
    MAXIMAL: _maximal,
    ONSET: _onset,
    PERFECT: _perfect,
}
