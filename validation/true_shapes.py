"""True curves of many shapes: log steps to target at log batch sizes, whatever a fit assumes.

Most are members of the family that is fitted (slopes that rise from -1 to 0), of every kind that
it was made for; the last ones are not: small-batch penalties, steps that rise again. Curves are
laid out over the tested range: their corner is in its middle unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np

from analysis.fit.convex import Array
from analysis.fit.knee import log_steps, theta
from validation import exact, quadratic
from validation.exact import LogSteps

LEAST = 1000.0
TOLERANCE = 0.2

Ends = tuple[float, float]
"""The smallest and the largest log batch size."""


def knee(ends: Ends, *, bend: float = 1.0, slope: float = 1.0, place: float = 0.5) -> LogSteps:
    """S = S_min (1 + (B_crit/B)^(a k))^(1/k) with B_crit at a share ``place`` of the range."""
    params = theta(LEAST, np.exp(_at(ends, place)), bend, slope)
    return lambda x: log_steps(x, params)


def power(ends: Ends, slope: float) -> LogSteps:
    """S falls as B^slope throughout."""
    return lambda x: np.log(LEAST) + slope * (x - ends[1])


def log_quadratic(ends: Ends) -> LogSteps:
    """The slope rises evenly from -1 at the smallest batch size to 0 at the largest."""
    return lambda x: np.log(LEAST) + np.square(x - ends[1]) / (2 * (ends[1] - ends[0]))


def two_lines(ends: Ends, slope: float) -> LogSteps:
    """S = S_c ((B_c/B) + (B/B_c)^slope): perfect scaling, then a plateau that falls or rises, from
    a third of the range on."""
    corner = _at(ends, 1 / 3)
    return lambda x: np.log(LEAST) + np.logaddexp(corner - x, slope * (x - corner))


def a_doubling(change: float) -> float:
    """The slope of steps that change by a factor 1 + ``change`` with each doubling."""
    return float(np.log2(1 + change))


def two_corners(ends: Ends, share: float = 0.5, bend: float = 2.0) -> LogSteps:
    """S = S_min K₁^w K₂^(1-w), K_i = (1 + (B_i / B)^k)^(1/k), w = ``share``: slopes -1, -(1-w), 0,
    with corners at 0.3 and 0.7 of the range."""
    first, second = _at(ends, 0.3), _at(ends, 0.7)

    def steps(x: Array) -> Array:
        corners = [np.logaddexp(0.0, bend * (at - x)) / bend for at in (first, second)]
        return np.asarray(np.log(LEAST) + share * corners[0] + (1.0 - share) * corners[1])

    return steps


def penalized(ends: Ends, by: float) -> LogSteps:
    """The knee of bend 1, at two thirds of the range, times 1 + c B_1/B: the smallest batch size
    B_1 takes 1 + ``by`` times the fewest examples."""
    from scipy.optimize import brentq

    inner = knee(ends, place=2 / 3)

    def with_cost(cost: float) -> LogSteps:
        return lambda x: inner(x) + np.log1p(cost * np.exp(ends[0] - x))

    def over(log_cost: float) -> float:
        steps = with_cost(float(np.exp(log_cost)))
        return exact.truth(steps, *ends, TOLERANCE).penalty - float(np.log1p(by))

    return with_cost(float(np.exp(brentq(over, np.log(by) - 2, np.log(by) + 3, xtol=1e-6))))


@cache
def noisy_quadratic() -> LogSteps:
    """SGD on the noisy quadratic model (``validation.nqm``), exactly, with B_crit at 0."""
    finer = quadratic.finely("sgd")
    return lambda x: finer(x + np.log(830.0))


def _at(ends: Ends, share: float) -> float:
    return ends[0] + share * (ends[1] - ends[0])


BENDS = (0.6, 0.8, 1.0, 1.7, 3.0)
FALLS = (2, 4, 7, 17)
"""In per cent a doubling."""
SHAPES: Mapping[str, Callable[[Ends], LogSteps]] = {
    **{f"knee of bend {bend:g}": partial(knee, bend=bend) for bend in BENDS},
    "slope -0.8, then level": lambda ends: knee(ends, slope=0.8),
    "power -0.8": lambda ends: power(ends, -0.8),
    "power -0.95": lambda ends: power(ends, -0.95),
    "log-quadratic": log_quadratic,
    **{f"plateau falls {by} %": partial(two_lines, slope=a_doubling(-by / 100)) for by in FALLS},
    "ends at the knee": lambda ends: knee(ends, place=1.0),
    "begins at the knee": lambda ends: knee(ends, place=0.0),
    "two corners": two_corners,
    "noisy quadratic model": lambda ends: lambda x: noisy_quadratic()(x - _at(ends, 0.5)),
    "plateau rises 5 %": lambda ends: two_lines(ends, a_doubling(0.05)),
    "penalty of 15 %": lambda ends: penalized(ends, 0.15),
    "penalty of 40 %": lambda ends: penalized(ends, 0.40),
}
PENALIZED = ("penalty of 15 %", "penalty of 40 %")
RISING = ("plateau rises 5 %",)
