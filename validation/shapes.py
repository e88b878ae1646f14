"""True curves that are no knees with perfect scaling, each with its exact formula."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from analysis.fit.knee import Array, log_steps, theta
from validation import nqm
from validation.exact import LogSteps, between

CRITICAL = 90.5  # the middle of fourteen doublings from 1
LEAST = 1000.0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A true curve and the log batch sizes that it is tested at."""

    steps: LogSteps
    x: Array


def sloped(slope: float) -> LogSteps:
    """S = S_min (1 + (B_crit / B)^a): with a < 1 nothing scales perfectly."""
    return lambda x: log_steps(x, theta(LEAST, CRITICAL, 1.0, slope))


def rising(doublings: float, by: float) -> LogSteps:
    """McCandlish's knee times (B / B_r)^r from B_r = 2^``doublings`` B_crit on, ``by`` = 2^r - 1
    more steps a doubling."""
    turn, rate = np.log(CRITICAL) + doublings * np.log(2.0), np.log1p(by) / np.log(2.0)
    knee = theta(LEAST, CRITICAL)
    return lambda x: log_steps(x, knee) + rate * np.maximum(x - turn, 0.0)


def two_corners(share: float, apart: float, bend: float = 2.0) -> LogSteps:
    """S = S_min K₁^w K₂^(1-w), K_i = (1 + (B_i / B)^k)^(1/k): slopes -1, -(1-w), 0 in log-log axes.

    ``share`` is w, ``apart`` B_2 / B_1 in doublings, ``bend`` the k of both corners; B_1^w
    B_2^(1-w) is B_crit.
    """
    gap = apart * np.log(2.0)
    first = np.log(CRITICAL) - (1.0 - share) * gap

    def steps(x: Array) -> Array:
        corners = [np.logaddexp(0.0, bend * (at - x)) / bend for at in (first, first + gap)]
        return np.asarray(np.log(LEAST) + share * corners[0] + (1.0 - share) * corners[1])

    return steps


@functools.cache
def quadratic(rule: str) -> LogSteps:
    """The noisy quadratic model's exact curve (``validation.nqm``) at every half doubling from 4 to
    2²⁰ and a monotone cubic between, tuned over three times as many learning rates as the paper's
    grid: that one is coarse enough to raise SGD's plateau by 4 %."""
    sizes = np.round(2.0 ** np.arange(2, 20.25, 0.5)).astype(int).tolist()
    rates = nqm.RULES[rule].learning_rates
    finer = np.geomspace(rates[0], rates[-1], 3 * len(rates))
    found = [tuned.steps for tuned in nqm.tune(sizes, rule, learning_rates=finer)]
    assert None not in found
    return between(np.log(sizes), np.log(np.array(found, dtype=float)))


_SHAPES: Mapping[str, Callable[[], LogSteps]] = {
    "knee": lambda: sloped(1.0),
    "slope 0.9": lambda: sloped(0.9),
    "slope 0.8": lambda: sloped(0.8),
    "rise from 8 B_crit": lambda: rising(3, 0.1),
    "rise from 32 B_crit": lambda: rising(5, 0.1),
    "slow plateau": lambda: two_corners(0.75, 5),
    "slow departure": lambda: two_corners(0.25, 5),
    "quadratic, SGD": lambda: quadratic("sgd"),
    "quadratic, heavy ball": lambda: quadratic("heavy_ball"),
}
NAMES = tuple(_SHAPES)
"""In the page's order; the first is a knee, to compare with."""


def shape(name: str) -> Shape:
    """The true curve of that name, and where it is tested."""
    doublings = np.arange(2, 21) if name.startswith("quadratic") else np.arange(14)
    return Shape(steps=_SHAPES[name](), x=np.log(2.0) * doublings)
