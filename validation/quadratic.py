"""The regimes of curves that are known exactly: the noisy quadratic model, tuned."""

from __future__ import annotations

from functools import cache

import numpy as np

from analysis.curves.curve import Curve
from analysis.curves.points import Point
from analysis.fit.regimes import Regimes, regimes
from validation import exact, nqm
from validation.exact import LogSteps
from validation.harness import TOLERANCE
from validation.page import interval, short, table

SIZES = [2**i for i in range(2, 21)]
NAMES = {"sgd": "SGD", "heavy_ball": "heavy ball", "ema": "averaged iterates"}


@cache
def steps(rule: str) -> tuple[int, ...]:
    """Exact steps to the goal at each of ``SIZES``, tuned over the paper's grids."""
    counts = tuple(tuned.steps for tuned in nqm.tune(SIZES, rule) if tuned.steps is not None)
    assert len(counts) == len(SIZES)
    return counts


@cache
def estimated(rule: str, every: int = 1) -> Regimes:
    """The regimes of the curve at every so-manyth of ``SIZES``."""
    points = tuple(
        Point(batch_size=size, steps=float(count), trials=1, middles=(float(count),))
        for size, count in zip(SIZES[::every], steps(rule)[::every], strict=True)
    )
    group = {"optimizer": rule}
    return regimes(Curve(group=group, label=NAMES[rule], target=None, points=points, trials=1))


@cache
def finely(rule: str) -> LogSteps:
    """The exact curve at every half doubling from 4 to 2²⁰ and a monotone cubic between, tuned over
    three times as many learning rates as the paper's grid: that one is coarse enough to raise SGD's
    plateau by 4 %."""
    sizes = np.round(2.0 ** np.arange(2, 20.25, 0.5)).astype(int).tolist()
    rates = nqm.RULES[rule].learning_rates
    finer = np.geomspace(rates[0], rates[-1], 3 * len(rates))
    counts = [tuned.steps for tuned in nqm.tune(sizes, rule, learning_rates=finer)]
    assert None not in counts
    return exact.between(np.log(sizes), np.log(np.array(counts, dtype=float)))


@cache
def true(rule: str) -> dict[str, float]:
    """The quantities by their definitions, read off a monotone cubic through the exact curve."""
    x = np.log(SIZES)
    curve = exact.between(x, np.log(np.array(steps(rule), dtype=float)))
    quantities = exact.truth(curve, x[0], x[-1], TOLERANCE).quantities
    return {name: float(np.exp(value)) for name, value in quantities.items()}


def tables() -> dict[str, str]:
    """Exact quantities and their intervals, and the critical batch sizes of half of the points."""
    rows = []
    for name in true("sgd"):
        rows.append([f"exact `{name}`", *(short(true(rule)[name]) for rule in NAMES)])
        each = (getattr(estimated(rule), name) for rule in NAMES)
        rows.append(["what is said", *(interval(quantity) for quantity in each)])
    rows.append(["notes", *("; ".join(estimated(rule).notes) or "none" for rule in NAMES)])
    halved = [f"{NAMES[rule]} {interval(estimated(rule, 2).critical_batch_size)}" for rule in NAMES]
    said = f"At every second batch size the critical batch sizes are: {', '.join(halved)}."
    return {"exact": f"{table(['', *NAMES.values()], rows)}\n{said}"}
