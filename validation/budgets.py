"""Does the law of the best batch size of a budget hold the true one, and when is there one?

Losses at several budgets and batch sizes, one run each, on surfaces whose minimum follows a known
power law: a parabola in log B, or a valley, which rises to both sides as examples are wasted there.
They are analysed by ``analysis.fit.optimal_batch``, as a sweep's or a file's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.curves.final_losses import FinalLoss, FinalLosses
from analysis.fit.convex import Array
from analysis.fit.interval import Interval
from analysis.fit.optimal_batch import OptimalBatch
from validation.harness import Counts, groups
from validation.page import share, table

CHANGES = {"equal": 1.0, "falling": 6.0}
"""Noise at the least budget over that at the largest; its geometric mean is that of a cell."""
SIZES: Array = np.log(2.0) * np.arange(4, 12)
BUDGETS: Array = np.log(2.0) * np.arange(18, 25)


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """A surface and its noise."""

    number: int
    """Its seed's."""
    shape: str
    noise: float
    """Standard deviation of a loss over what two doublings from the minimum cost."""
    change: str = "equal"
    scatter: float = 0.0
    """How far vertices lie off the law in log B."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """What is true of the losses of a sweep."""

    exponent: float
    coefficient: float
    optima: Array
    """The best batch size of each budget."""


def key(cell: Budgets) -> Counts:
    return {name: getattr(cell, name) for name in ("shape", "noise", "change", "scatter")}


def seed(cell: Budgets) -> list[int]:
    return [2034, cell.number]


def loss(shape: str, away: Array) -> Array:
    """Loss over its least at a distance ``away`` from the minimum in log B, in units of what two
    doublings up cost; (…)."""
    at = away / np.log(4.0)
    if shape == "parabola":
        return np.square(at)

    def wasted(x: Array) -> Array:
        """Examples used in vain double about 16 times below and above the minimum."""
        used = np.log1p(np.exp(x) / 16) + np.log1p(np.exp(-x) / 16)
        return np.asarray(np.expm1(0.2 * used) - np.expm1(0.4 * np.log1p(1 / 16)))

    return np.asarray(wasted(away) / wasted(np.array(np.log(4.0))))


def simulate(
    cell: Budgets, _: object, rng: np.random.Generator, laws: int
) -> list[tuple[FinalLosses, Law]]:
    """The losses of some sweeps, each with its law."""
    return [_losses(cell, rng) for _ in range(laws)]


def _losses(cell: Budgets, rng: np.random.Generator) -> tuple[FinalLosses, Law]:
    exponent = rng.uniform(0.2, 0.7)
    middle = SIZES.mean() + rng.uniform(-1, 1) * np.log(2.0)
    vertices = middle + exponent * (BUDGETS - BUDGETS.mean())
    vertices = vertices + cell.scatter * rng.normal(size=len(BUDGETS))
    share = (BUDGETS - BUDGETS.mean()) / np.ptp(BUDGETS)
    deviations = cell.noise * CHANGES[cell.change] ** -share
    points = [
        FinalLoss(
            batch_size=round(np.exp(size)),
            budget=float(np.exp(budget)),
            examples=float(np.exp(budget)),
            value=float(3 + loss(cell.shape, size - vertex) + deviation * rng.normal()),
            configurations=1,
        )
        for budget, vertex, deviation in zip(BUDGETS, vertices, deviations, strict=True)
        for size in SIZES
    ]
    final = FinalLosses(
        group={}, label="made", metric="loss", lower_is_better=True, points=tuple(points)
    )
    log_coefficient = middle - exponent * BUDGETS.mean()
    law = Law(
        exponent=exponent,
        coefficient=float(np.exp(log_coefficient)),
        optima=np.exp(vertices),
    )
    return final, law


def count(_: Budgets, estimates: Sequence[OptimalBatch], laws: Sequence[Law]) -> Counts:
    """What the intervals of optima and laws hold."""
    pairs = [
        (optimum.batch_size, float(true))
        for each, law in zip(estimates, laws, strict=True)
        for optimum, true in zip(each.optima, law.optima, strict=True)
    ]
    known = list(zip(estimates, laws, strict=True))
    widths = [e.high - e.low for each in estimates if (e := each.exponent).low is not None
              and e.high is not None]  # fmt: skip
    return {
        "laws": len(estimates),
        "optima": len(pairs),
        "optima_open": sum(not interval.reached for interval, _ in pairs),
        "optima_covered": sum(interval.holds(true) for interval, true in pairs),
        "with_law": sum(each.exponent.reached for each in estimates),
        "exponent": sum(_covered(each.exponent, law.exponent) for each, law in known),
        "coefficient": sum(_covered(each.coefficient, law.coefficient) for each, law in known),
        "width": round(float(np.median(widths)), 4) if widths else None,
    }


def _covered(interval: Interval, true: float) -> bool:
    return interval.reached and interval.holds(true)


def tables(frame: pd.DataFrame) -> dict[str, str]:
    rows = [
        [
            *cells,
            f"{share(total['optima_covered'], total['optima'])} "
            f"({share(total['optima_open'], total['optima'])})",
            share(total["with_law"], total["laws"]),
            share(total["exponent"], total["with_law"]),
            share(total["coefficient"], total["with_law"]),
            "–" if group["width"].isna().all() else f"{group['width'].mean():.2f}",
        ]
        for cells, group, total in groups(frame, ["shape", "scatter", "change", "noise"])
    ]
    head = [
        "surface", "off the law", "noise over budgets", "noise", "optimum of a budget", "laws",
        "exponent", "coefficient", "high − low of the exponent",
    ]  # fmt: skip
    return {"budgets": table(head, rows)}
