"""Table: does the law of the best batch size of a budget hold the true one, and when is there one?

Losses at several budgets and batch sizes, one run each, on surfaces whose minimum follows a known
power law: a parabola in log B, or a valley, which rises to both sides as examples are wasted there.
They are analysed by ``analysis.fit.optimal_batch``, as a sweep's or a file's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.curves.final_losses import FinalLoss, FinalLosses
from analysis.fit.convex import Array
from analysis.fit.interval import Interval
from analysis.fit.optimal_batch import OptimalBatch, optimal_batch
from validation.page import keep, paragraphs, share, table
from validation.tally import named, run

SHAPES = ("parabola", "valley")
NOISES = (0.1, 0.3, 1.0)
"""Standard deviation of a loss over what two doublings from the minimum cost."""
CHANGES = {"equal": 1.0, "falling": 6.0}
"""Noise at the least budget over that at the largest; its geometric mean is that of ``NOISES``."""
SCATTER = 0.3
"""How far vertices lie off the law in log B, in the rows where they do."""
SIZES: Array = np.log(2.0) * np.arange(4, 12)
BUDGETS: Array = np.log(2.0) * np.arange(18, 25)
LAWS = 15
BLOCKS_EACH = 2
SEED = 2034


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A surface and its noise."""

    shape: str
    noise: float
    change: str = "equal"
    scatter: float = 0.0


CELLS = (
    *(Cell(shape=s, noise=n, change=c) for s in SHAPES for n in NOISES for c in CHANGES),
    *(Cell(shape="parabola", noise=n, scatter=SCATTER) for n in NOISES[:2]),
)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some laws of a cell."""

    cell: Cell
    number: int
    laws: int = LAWS


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


def measured(cell: Cell, rng: np.random.Generator) -> tuple[OptimalBatch, float, float, Array]:
    """A law as it is estimated, its true exponent, log coefficient, and vertices (m,)."""
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
    return optimal_batch(final), exponent, float(log_coefficient), vertices


def count(block: Block) -> dict[str, object]:
    """A row of counts."""
    cell = block.cell
    rng = np.random.default_rng([SEED, CELLS.index(cell), block.number])
    counts = dict.fromkeys(
        ["optima", "optima_open", "optima_covered", "with_law", "exponent", "coefficient"], 0
    )
    widths = []
    for _ in range(block.laws):
        made, exponent, log_coefficient, vertices = measured(cell, rng)
        for optimum, vertex in zip(made.optima, vertices, strict=True):
            counts["optima"] += 1
            counts["optima_open"] += not optimum.batch_size.reached
            counts["optima_covered"] += optimum.batch_size.holds(float(np.exp(vertex)))
        counts["with_law"] += made.exponent.reached
        counts["exponent"] += made.exponent.reached and made.exponent.holds(exponent)
        counts["coefficient"] += _covered(made.coefficient, log_coefficient)
        if made.exponent.low is not None and made.exponent.high is not None:
            widths.append(made.exponent.high - made.exponent.low)
    width = round(float(np.median(widths)), 4) if widths else None
    return {
        "shape": cell.shape,
        "noise": cell.noise,
        "change": cell.change,
        "scatter": cell.scatter,
        "block": block.number,
        "laws": block.laws,
        **counts,
        "width": width,
    }


def _covered(interval: Interval, log_value: float) -> bool:
    return interval.reached and interval.holds(float(np.exp(log_value)))


def section(processes: int | None) -> str:
    blocks = [Block(cell=cell, number=number) for cell in CELLS for number in range(BLOCKS_EACH)]
    return render(keep("budgets", run(count, blocks, "budgets", processes)))


BY = ["shape", "scatter", "change", "noise"]


def render(frame: pd.DataFrame) -> str:
    """The section's Markdown from its counts."""
    rows = []
    for key, group in frame.groupby(BY, sort=False):
        total = group.sum(numeric_only=True)
        rows.append(
            [
                *named(BY, key),
                f"{share(total['optima_covered'], total['optima'])} "
                f"({share(total['optima_open'], total['optima'])})",
                share(total["with_law"], total["laws"]),
                share(total["exponent"], total["with_law"]),
                share(total["coefficient"], total["with_law"]),
                "–" if group["width"].isna().all() else f"{group['width'].mean():.2f}",
            ]
        )
    head = [
        "surface", "off the law", "noise over budgets", "noise", "optimum of a budget", "laws",
        "exponent", "coefficient", "high − low of the exponent",
    ]  # fmt: skip
    return paragraphs(_INTRODUCTION, table(head, rows))


_INTRODUCTION = f"""The best batch size of a budget and its law (`plot optimal-batch`):
{LAWS * BLOCKS_EACH} laws a row, B_opt = k·D^p with p from 0.2 to 0.7, of one loss at each of
{len(SIZES)} doublings of the batch size and {len(BUDGETS)} of the budget. The loss is a *parabola*
in log B, or a *valley*, whose sides rise more slowly the farther they are. Noise is in per cent of
what two doublings from the minimum cost; *falling* noise is {CHANGES["falling"]:g} times as large
at the least budget as at the largest. *Off the law*: standard deviation of log B_opt about it. In
per cent: coverage of the 90 % intervals of B_opt at a budget, in brackets the open ones; sweeps
with a law, and of these, coverage of its exponent and coefficient. Where the noise is what two
doublings cost, the sweeps that have a law are a selection, and cover less.
"""
