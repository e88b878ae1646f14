"""Whole searches, from the trials table to the regimes.

The truth is what is estimated: the regimes of the median, over fresh searches, of the best of N.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.curves.curve import Curve, curves
from analysis.fit.fitted_points import fitted_points
from analysis.fit.interval import QUANTITIES
from analysis.fit.locate import Located, locate
from validation import surface as surfaces
from validation.page import SHORT, keep, number, paragraphs, share, table
from validation.surface import Surface, sweep
from validation.tally import TOLERANCE, coverage_cells, estimates, named, run, tally

DIMENSIONS = (1, 2, 3)
TRIALS = (16, 64)
NOISES = (0.05, 0.20)
SWEEPS = 20
"""Number of sweeps in a block."""
BLOCKS_EACH = 5
SEED = 2028


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A surface, and the N of its searches."""

    dimensions: int
    trials: int
    noise: float

    @property
    def surface(self) -> Surface:
        return Surface(dimensions=self.dimensions, noise=self.noise)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Some sweeps of a cell, and its truth."""

    cell: Cell
    number: int
    truth: dict[str, float]
    sweeps: int = SWEEPS


CELLS = tuple(
    Cell(dimensions=dimensions, trials=trials, noise=noise)
    for dimensions in DIMENSIONS
    for trials in TRIALS
    for noise in NOISES
)


def truth(cell: Cell) -> dict[str, float]:
    return surfaces.truth(cell.surface, cell.trials)


def search(cell: Cell, number: int, sweeps: int) -> list[Curve]:
    """The curves of some sweeps, by the path that a results dataset takes."""
    rng = np.random.default_rng(
        [SEED, cell.dimensions, cell.trials, round(1000 * cell.noise), number]
    )
    frames = [sweep(cell.surface, cell.trials, rng, f"{i:04d}") for i in range(sweeps)]
    return curves(pd.concat(frames, ignore_index=True))


def measured(cell: Cell, number: int, sweeps: int) -> tuple[list[Curve], list[Located]]:
    """The curves of some sweeps, and what is located of each."""
    made = search(cell, number, sweeps)
    return made, [locate(fitted_points(curve), tolerance=TOLERANCE) for curve in made]


def count(block: Block) -> dict[str, object]:
    """A row of counts."""
    cell = block.cell
    made, located = measured(cell, block.number, block.sweeps)
    return {
        "dimensions": cell.dimensions,
        "trials": cell.trials,
        "noise": cell.noise,
        "block": block.number,
        "censored": sum(len(curve.censored) for curve in made),
        "infeasible": sum(point.infeasible for curve in made for point in curve.points),
        "ran": sum(point.ran for curve in made for point in curve.points),
        "scatter": round(float(np.median([each.fits.best.noise for each in located])), 4),
        "level": sum(each.small_level and each.large_level for each in located),
        **estimates(located, block.truth),
        **tally(located, [block.truth] * len(located)),
    }


def section(processes: int | None) -> str:
    truths = run(truth, CELLS, "searches: truths", processes)
    blocks = [
        Block(cell=cell, number=number, truth=true)
        for cell, true in zip(CELLS, truths, strict=True)
        for number in range(BLOCKS_EACH)
    ]
    return render(keep("searches", run(count, blocks, "searches", processes)))


BY = ["dimensions", "trials", "noise"]


def render(frame: pd.DataFrame) -> str:
    """The section's Markdown from its counts."""
    covered, ratios = [], []
    for key, group in frame.groupby(BY, sort=False):
        total, cells = group.sum(numeric_only=True), named(BY, key)
        covered.append(
            [
                *cells,
                f"{100 * group['scatter'].mean():.1f} %",
                *coverage_cells(total),
            ]
        )
        ratios.append(
            [
                *cells,
                *(
                    f"{number(group[f'true:{name}'].iloc[0])} · {group[f'ratio:{name}'].mean():.2f}"
                    for name in QUANTITIES
                ),
                share(total["level"], total["curves"]),
                share(total["censored"], total["curves"] * len(surfaces.SIZES)),
            ]
        )
    head = ["dimensions", "N", "seed noise"]
    regimes = ["both ends level", "points censored"]
    return paragraphs(
        _introduction(),
        table([*head, "scatter", *SHORT.values()], covered),
        "The truth · the median of the estimates over it; curves whose ends are level and censored "
        "points in per cent:",
        table([*head, *SHORT.values(), *regimes], ratios),
    )


def _introduction() -> str:
    return f"""A sweep searches {len(surfaces.SIZES)} batch sizes, 1 to {surfaces.SIZES[-1]:,}, each
by the first N feasible points of its own scrambled Sobol sequence, on the surface of
`validation/surface.py`: a bowl in the unit cube about a best learning rate that moves with the
batch size. The budget ends a trial at {surfaces.BUDGET:g} times the bottom of the bowl; learning
rates far above the best diverge; every trial has a seed's noise. Trials are looked at on a grid of
ratio {surfaces.RATIO:g} and dominated past X(4), and go through `analysis.curves` like a sweep's
own. The truth is read off the median best of N over {surfaces.FRESH:,} fresh searches at each batch
size, over the tested range. A row is {SWEEPS * BLOCKS_EACH} sweeps; *scatter* is the median noise
that the fit takes for a point, most of it the searches' luck. Coverage in per cent, in brackets the
share of intervals with an open end.
"""
