"""Table 2: the estimates for true curves that are not knees with perfect scaling."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.fit.knee import QUANTITIES, Array, log_steps, theta
from validation import exact, nqm
from validation.exact import LogSteps, between
from validation.page import SHORT, keep, number, paragraphs, share, table
from validation.tally import (
    REGIMES,
    TOLERANCE,
    Drawn,
    analyse,
    claimed,
    coverage_table,
    estimates,
    named,
    run,
    tally,
)

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
    steps = [tuned.steps for tuned in nqm.tune(sizes, rule, learning_rates=finer)]
    assert None not in steps
    return between(np.log(sizes), np.log(np.array(steps, dtype=float)))


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


NOISES = (0.02, 0.05, 0.10, 0.20)
REPEATS = (1, 3)
CURVES = 50
BLOCKS_EACH = 2
SEED = 2027


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some curves of one shape, noise and number of repeats."""

    shape: str
    noise: float
    repeats: int
    number: int
    curves: int = CURVES


BLOCKS = tuple(
    Block(shape=shape, noise=noise, repeats=repeats, number=number)
    for shape in NAMES
    for noise in NOISES
    for repeats in REPEATS
    for number in range(BLOCKS_EACH)
)


@functools.cache
def _with_truth(name: str) -> tuple[Shape, dict[str, float]]:
    curve = shape(name)
    return curve, exact.quantities(curve.steps, curve.x[0], curve.x[-1], TOLERANCE)


def draw(block: Block) -> Drawn:
    """The curves of ``block``, whose seed is its own."""
    curve, truth = _with_truth(block.shape)
    key = zlib.crc32(block.shape.encode())
    rng = np.random.default_rng([SEED, key, round(1000 * block.noise), block.repeats, block.number])
    x = np.tile(np.repeat(curve.x, block.repeats), (block.curves, 1))
    y = curve.steps(x[0]) + rng.normal(0.0, block.noise, x.shape)
    margin = {
        name: min(truth[name] - curve.x[0], curve.x[-1] - truth[name]) / np.log(2.0)
        for name in REGIMES
    }
    return Drawn(
        x=x,
        y=y,
        weight=np.ones_like(x),
        truth={name: np.full(len(x), value) for name, value in truth.items()},
        margin={name: np.full(len(x), value) for name, value in margin.items()},
    )


def count(block: Block) -> dict[str, object]:
    """A row of counts, with the quantities' true values and median estimates over them."""
    drawn = draw(block)
    estimate = analyse(drawn)
    where = ("shape", "noise", "repeats", "number")
    row: dict[str, object] = {name: getattr(block, name) for name in where}
    row |= estimates(estimate, drawn)
    row["sloped"] = int(estimate.fitted.data.sloped.sum())
    return {**row, **tally(estimate, drawn)}


def section(processes: int | None) -> str:
    return render(keep("outside", run(count, BLOCKS, "outside", processes)))


def render(frame: pd.DataFrame) -> str:
    """The section's Markdown from its counts."""
    by = ["shape", "noise"]
    return paragraphs(
        _INTRODUCTION,
        _truths(frame),
        "Coverage in per cent, in brackets the share of open intervals; "
        f"{' and '.join(map(str, REPEATS))} repeats together:",
        coverage_table(frame, by, by),
        _SAID,
        _said(frame),
    )


_INTRODUCTION = """The truth of each quantity is its definition in [regimes.md](regimes.md), applied
to the true curve itself.

- **slope a**: S = S_min (1 + (B_crit/B)^a), a < 1. E has no least value, so that nothing scales
  perfectly: whatever low end is given for perfect scaling is wrong. The least examples are those
  over the tested batch sizes.
- **rise**: McCandlish's knee, with 10 % more steps a doubling from 8 or 32 B_crit on.
- **slow plateau**, **slow departure**: S = S_min K₁^w K₂^(1−w) of two corners K = (1 +
  (B_i/B)²)^(1/2), five doublings apart: log-log slopes −1, −(1−w), 0, with w = 3/4 and 1/4. B_crit
  is B₁^w B₂^(1−w).
- **quadratic**: the exact curves of the noisy quadratic model (Zhang et al. 2019) at 19 doublings,
  tuned over three times as many learning rates as the paper's grid, on which SGD's plateau is 4 %
  higher (below, under *exact*); the other curves have 14 doublings.
"""

_SAID = """What is said: the median of the estimates (wherever they lie) over the truth, and the
share of curves, in per cent, that claim each regime as reached and that find a slope of their own:
"""


def _truths(frame: pd.DataFrame) -> str:
    rows = []
    for name, group in frame.groupby("shape", sort=False):
        values = [float(group[f"true:{quantity}"].iloc[0]) for quantity in QUANTITIES]
        rows.append([name, *(number(value) for value in values)])
    return table(["truth", *SHORT.values()], rows)


def _said(frame: pd.DataFrame) -> str:
    rows = []
    by = ["shape", "noise"]
    for key, group in frame.groupby(by, sort=False):
        ratios = [group[f"ratio:{name}"].mean() for name in QUANTITIES]
        rows.append(
            [
                *named(by, key),
                *("–" if np.isnan(ratio) else f"{ratio:.2f}" for ratio in ratios),
                *claimed(group),
                share(group["sloped"].sum(), group["curves"].sum()),
            ]
        )
    head = ["shape", "noise", *SHORT.values(), "claims perfect scaling", "claims a plateau"]
    return table([*head, "finds a slope"], rows)
