"""The bendable knee: steps to target against batch size, and the quantities read off it.

    S(B) = S_min (1 + (B_crit / B)^(a k))^(1 / k)

k bends the knee, a is minus the log-log slope at small batches. With a = k = 1 it is the curve of
McCandlish et al. 2018 (arXiv:1812.06162), for which (S/S_min - 1)(E/E_min - 1) = 1. Everything is
in natural logarithms: a parameter vector is ``(log S_min, log B_crit, log k, a)`` along the last
axis, so that noise in log steps is additive and one code serves a single curve and thousands.

Each quantity is a function of the parameters, and a constraint on them. A profile likelihood holds
one quantity at a value and lets the rest of the curve adapt. That is done here by giving up one
parameter: it is a function of the quantity's value and of the other parameters, with known
derivatives, so that one least-squares solver serves all. Rows are independent: ``kind`` may differ
from row to row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]

STEPS, BATCH, BEND, SLOPE = range(4)
"""Places in a parameter vector: log S_min, log B_crit, log k, a."""

BENDS = (0.4, 8.0)
SLOPES = (0.5, 2.0)

FREE = -1
"""The kind for no quantity: no parameter is fixed."""
CRITICAL, MIN_STEPS, MIN_EXAMPLES, PERFECT, MAXIMAL, ONSET, SLOPE_ITSELF, BEND_ITSELF = range(8)
"""Kinds of quantity. ONSET is where E passes (1 + tolerance) S_min B_crit: the end of perfect
scaling if E's asymptote, rather than the least E tested, is the yardstick."""
BEST, UNTIL, MEETING = 8, 9, 10
"""Kinds for curves with a > 1, of which E has a minimum: the batch size where it lies, the larger
one at which E is 1 + tolerance times it, and E_min / S_min (``turn``, ``until``, ``meeting``)."""

_GIVEN_UP = {
    CRITICAL: BATCH,
    MIN_STEPS: STEPS,
    MIN_EXAMPLES: STEPS,
    PERFECT: BATCH,
    MAXIMAL: BATCH,
    ONSET: BATCH,
    SLOPE_ITSELF: SLOPE,
    BEND_ITSELF: BEND,
    BEST: BATCH,
    UNTIL: BATCH,
    MEETING: BATCH,
}
"""The parameter that each kind gives up."""

QUANTITIES: Mapping[str, int] = {
    "perfect_scaling_until": PERFECT,
    "maximal_parallelism_from": MAXIMAL,
    "critical_batch_size": CRITICAL,
    "min_steps": MIN_STEPS,
    "min_examples": MIN_EXAMPLES,
}
"""The five quantities of a curve and the kind of each, in the order of ``regimes --json``."""
BY_EXAMPLES = ("perfect_scaling_until", "min_examples")
"""Quantities that rest on examples to target being B·S."""
GROWS = (
    "the batch size grows during training: every batch size here is that of the first step, and "
    "examples to target are not B·S, so that perfect_scaling_until and min_examples are not given"
)
BATCH_SIZES = tuple(QUANTITIES)[:3]
"""The quantities that are batch sizes, and so must lie among the tested ones."""
COLUMNS = tuple(tuple(QUANTITIES)[place] for place in (0, 2, 1, 3, 4))
"""The quantities in the order of tables: the batch sizes as they lie along a curve."""


def theta(min_steps: float, critical: float, bend: float = 1.0, slope: float = 1.0) -> Array:
    """The parameter vector of a curve given in plain units (steps, examples a batch)."""
    return np.array([np.log(min_steps), np.log(critical), np.log(bend), slope])


def log_steps(x: Array, params: Array) -> Array:
    """log S at log batch sizes ``x`` (..., n) for ``params`` (..., 4); shape (..., n)."""
    k = np.exp(params[..., BEND, None])
    z = params[..., SLOPE, None] * k * (params[..., BATCH, None] - x)
    return np.asarray(params[..., STEPS, None] + np.logaddexp(0.0, z) / k)


def jacobian(x: Array, params: Array) -> tuple[Array, Array]:
    """``log_steps`` and its derivatives by the four parameters: (..., n) and (..., n, 4)."""
    k = np.exp(params[..., BEND, None])
    a = params[..., SLOPE, None]
    away = params[..., BATCH, None] - x
    z = a * k * away
    bend = np.logaddexp(0.0, z) / k
    share = sigmoid(z)
    slopes = np.empty((*z.shape, 4))
    slopes[..., STEPS] = 1.0
    slopes[..., BATCH] = a * share
    slopes[..., BEND] = a * away * share - bend
    slopes[..., SLOPE] = away * share
    return params[..., STEPS, None] + bend, slopes


def sigmoid(z: Any) -> Any:
    """1 / (1 + e^-z), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def excess(params: Array, tolerance: float) -> tuple[Array, Array, Array]:
    """log((1 + tolerance)^k - 1), its derivative by log k, and the half width it gives, (...).

    The half width u is the distance in log B between B_crit and the ends of diminishing returns:
    S = (1 + tolerance) S_min at log B_crit + u, and for a = 1 E = (1 + tolerance) S_min B_crit at
    log B_crit - u. From k = log 2 / log(1 + tolerance) on the two would cross: u is 0 there.
    """
    k = np.exp(params[..., BEND])
    growth = k * np.log1p(tolerance)
    over = np.log(np.expm1(growth))
    by_bend = growth * np.exp(growth) / np.expm1(growth)
    return over, by_bend, -np.minimum(over, 0.0) / (params[..., SLOPE] * k)


def sharp(bend: float, tolerance: float) -> bool:
    """Whether the knee is so sharp that no diminishing returns are left at this tolerance."""
    return bool(bend * np.log1p(tolerance) >= np.log(2.0))


def least_examples_at(params: Array, first: Array, last: Array) -> Array:
    """log B at which the fitted B·S is least over the tested range, for any slope a; (...).

    d log E / d log B = 1 - a sigmoid(a k (log B_crit - log B)): E rises throughout for a <= 1.
    """
    a = params[..., SLOPE]
    steep = np.maximum(a, 1.0 + 1e-12)
    turn = params[..., BATCH] + np.log(steep - 1.0) / (a * np.exp(params[..., BEND]))
    return np.where(a > 1.0, np.clip(turn, first, last), first)


STEEPEST_FLAT = 1.0 + 1e-4
"""Least slope for which the minimum of E is computed: as a falls to 1 it moves to batch size 0."""


def turn(params: Array) -> tuple[Array, Array]:
    """Where B·S is least, in log B above log B_crit, for a > 1; (...), and its derivatives by the
    four parameters, (..., 4).

    d log E / d log B = 1 - a sigmoid(a k (log B_crit - log B)) is 0 at log(a - 1) / (a k).
    """
    a, k = np.maximum(params[..., SLOPE], STEEPEST_FLAT), np.exp(params[..., BEND])
    at = np.log(a - 1.0) / (a * k)
    by = np.zeros_like(params)
    by[..., BEND] = -at
    by[..., SLOPE] = 1.0 / ((a - 1.0) * a * k) - at / a
    return at, by


def meeting(params: Array) -> tuple[Array, Array]:
    """E_min / S_min, where perfect scaling from the least B·S on meets the plateau, in log B above
    log B_crit; (...), and its derivatives as ``turn`` has them."""
    a, k = np.maximum(params[..., SLOPE], STEEPEST_FLAT), np.exp(params[..., BEND])
    least, _ = turn(params)
    share, above = sigmoid(-a * k * least), np.logaddexp(0.0, -a * k * least) / k
    by = np.zeros_like(params)
    # At the least E the place's own movement does not matter.
    by[..., BEND] = -a * least * share - above
    by[..., SLOPE] = -least * share
    return least + above, by


def until(params: Array, tolerance: float) -> tuple[Array, Array]:
    """The batch size above ``turn`` at which B·S is 1 + tolerance times its least, at most
    ``meeting``, in log B above log B_crit; (...), and its derivatives as ``turn`` has them."""
    a, k = np.maximum(params[..., SLOPE], STEEPEST_FLAT), np.exp(params[..., BEND])
    (least, _), (most, by_most) = turn(params), meeting(params)

    def examples(u: Array) -> tuple[Array, Array]:
        """log E / (S_min B_crit), and its derivative by u."""
        return u + np.logaddexp(0.0, -a * k * u) / k, 1.0 - a * sigmoid(-a * k * u)

    goal = examples(least)[0] + np.log1p(tolerance)
    # log E is convex and above u: Newton's method from u = goal falls to the solution.
    at = goal
    for _ in range(40):
        over, rate = examples(at)
        step = (over - goal) / np.maximum(rate, 1e-9)
        at = np.maximum(at - step, least)
        if np.max(np.abs(step), initial=0.0) < 1e-12:
            break
    _, rate = examples(at)
    capped = at >= most

    def changes(u: Array) -> tuple[Array, Array]:
        """Derivatives of log E by log k and by a."""
        share = sigmoid(-a * k * u)
        return -a * u * share - np.logaddexp(0.0, -a * k * u) / k, -u * share

    by = np.zeros_like(params)
    for place, here, there in zip((BEND, SLOPE), changes(at), changes(least), strict=True):
        by[..., place] = (there - here) / np.maximum(rate, 1e-9)
    return np.where(capped, most, at), np.where(capped[..., None], by_most, by)


@dataclass(frozen=True, kw_only=True)
class Range:
    """The tested range of each row: logs of the smallest and largest batch size, and tolerance."""

    first: Array
    last: Array
    tolerance: float

    def take(self, rows: Rows) -> Range:
        return Range(first=self.first[rows], last=self.last[rows], tolerance=self.tolerance)


def value(kind: int, params: Array, tested: Range, sloped: Mask) -> Array:
    """The quantity in natural logarithms (slopes as they are), one a row of ``params`` (R, 4).

    ``sloped``: the row's a is free, so that B·S has no asymptote and min_examples is the least
    fitted B·S over the tested range; with a = 1 it is S_min B_crit.
    """
    over, _, half = excess(params, tested.tolerance)
    if kind == MIN_EXAMPLES:
        least_at = least_examples_at(params, tested.first, tested.last)
        return np.where(
            sloped,
            least_at + jacobian(least_at[:, None], params)[0][:, 0],
            params[:, STEPS] + params[:, BATCH],
        )
    if kind == MAXIMAL:
        return params[:, BATCH] + half
    if kind == ONSET:
        return params[:, BATCH] - half
    if kind == BEST:
        return np.asarray(params[:, BATCH] + turn(params)[0])
    if kind == UNTIL:
        return np.asarray(params[:, BATCH] + until(params, tested.tolerance)[0])
    if kind == MEETING:
        return np.asarray(params[:, BATCH] + meeting(params)[0])
    if kind == PERFECT:
        # B^k = (1 + tolerance)^k (B_first^k + B_crit^k) - B_crit^k, never beyond B_crit.
        k = np.exp(params[:, BEND])
        grown = k * (np.log1p(tested.tolerance) + tested.first)
        end = np.logaddexp(grown, over + k * params[:, BATCH]) / k
        return np.minimum(end, params[:, BATCH])
    return params[:, _GIVEN_UP[kind]]


def given_up(kind: Rows) -> Mask:
    """Which parameter each row gives up, (R, 4)."""
    mask = np.zeros((len(kind), 4), dtype=bool)
    for each, place in _GIVEN_UP.items():
        mask[kind == each, place] = True
    return mask


def hold(kind: Rows, at: Array, params: Array, tested: Range, sloped: Mask) -> tuple[Array, Array]:
    """``params`` (R, 4) with the parameter that each row gives up set so that its quantity is
    ``at`` (R,), and that parameter's derivatives by the others (R, 4)."""
    held, by = params.copy(), np.zeros_like(params)
    for each in np.unique(kind):
        if each != FREE:
            rows = np.flatnonzero(kind == each)
            held[rows, _GIVEN_UP[each]], by[rows] = _constraint(
                each, at[rows], params[rows], tested.take(rows), sloped[rows]
            )
    return held, by


def _constraint(
    kind: int, at: Array, params: Array, tested: Range, sloped: Mask
) -> tuple[Array, Array]:
    """The parameter that a quantity of this kind gives up, and its derivatives, as ``hold``."""
    by = np.zeros_like(params)
    if kind == MIN_EXAMPLES:
        where = least_examples_at(params, tested.first, tested.last)
        fitted, slopes = jacobian(where[:, None], params)
        # At the least E the place's own movement does not matter (or it stands at an end).
        by = np.where(sloped[:, None], -slopes[:, 0], [0.0, -1.0, 0.0, 0.0])
        by[:, STEPS] = 0.0
        rest = where + fitted[:, 0] - params[:, STEPS]
        return at - np.where(sloped, rest, params[:, BATCH]), by
    if kind in (BEST, MEETING):
        above, rates = turn(params) if kind == BEST else meeting(params)
        return at - above, -rates
    if kind == UNTIL:
        above, rates = until(params, tested.tolerance)
        return at - above, -rates
    if kind not in (MAXIMAL, ONSET, PERFECT):
        return at, by
    over, over_by_bend, half = excess(params, tested.tolerance)
    if kind != PERFECT:  # log B_crit lies a half width from `at`
        sign = -1.0 if kind == MAXIMAL else 1.0
        scale = params[:, SLOPE] * np.exp(params[:, BEND])
        by[:, BEND] = np.where(over < 0, sign * (over - over_by_bend) / scale, 0.0)
        by[:, SLOPE] = -sign * half / params[:, SLOPE]
        return at + sign * half, by
    k = np.exp(params[:, BEND])
    gap = np.minimum(k * (np.log1p(tested.tolerance) + tested.first - at), -1e-12)
    beyond = (np.log(-np.expm1(gap)) - over) / k
    first = gap * np.exp(gap) / np.expm1(gap)
    capped = (gap >= -1e-12) | (over >= 0) | (beyond <= 0)
    by[:, BEND] = np.where(capped, 0.0, (first - over_by_bend) / k - beyond)
    return np.where(capped, at, at + beyond), by
