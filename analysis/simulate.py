"""Do the intervals cover, and are regimes claimed that are not there? By simulation.

A cell is a true knee, a noise level and a grid of batch sizes. Each of its curves draws normal
noise in log steps at every point (run-to-run scatter and search luck are both of that kind), is
analysed exactly as a measured one, and is held against the truth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from analysis import quantities as q
from analysis.estimate import BATCH_SIZES, QUANTITIES, Estimate, estimate
from analysis.knee import Array, log_steps, theta

REGIMES = BATCH_SIZES[:2]
"""The quantities whose being reached is a claim: the ends of the two outer regimes."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One set of conditions. ``batch_sizes`` are the tested ones, in examples."""

    batch_sizes: tuple[float, ...]
    critical: float
    bend: float = 1.0
    slope: float = 1.0
    noise: float = 0.05
    """Standard deviation of log steps."""
    repeats: int = 1
    min_steps: float = 1000.0


def doubling(count: int, *, by: float = 2.0) -> tuple[float, ...]:
    """Batch sizes 1, ``by``, ``by``² …, ``count`` of them."""
    return tuple(float(by) ** i for i in range(count))


def simulate(
    cell: Cell, curves: int, seed: int, *, tolerance: float = 0.2, level: float = 0.9
) -> Estimate:
    """Analyse ``curves`` draws of ``cell``; the generator is numpy's default, seeded ``seed``."""
    rng = np.random.default_rng(seed)
    x = np.log(np.repeat(cell.batch_sizes, cell.repeats))
    x = np.tile(x, (curves, 1))
    y = log_steps(x, _truth(cell)) + rng.normal(0.0, cell.noise, x.shape)
    return estimate(x, y, np.ones_like(x), tolerance=tolerance, level=level)


def coverage(
    cells: Iterable[Cell],
    curves: int,
    seed: int,
    *,
    tolerance: float = 0.2,
    level: float = 0.9,
) -> pd.DataFrame:
    """A row a cell and quantity: ``covered``, the share of intervals that hold the truth, open
    ends counting as infinite; ``open``, the share with an open end; for the two regimes also
    ``claimed``, the share of curves that claim it as reached, and ``there``, whether it is."""
    rows = []
    for i, cell in enumerate(cells):
        found = simulate(cell, curves, seed + i, tolerance=tolerance, level=level)
        for name in QUANTITIES:
            low, high = found.low[name], found.high[name]
            true, there = true_value(cell, name, tolerance)
            both = np.isfinite(low) & np.isfinite(high)
            rows.append(
                {
                    **asdict(cell),
                    "quantity": name,
                    "true": np.exp(true),
                    "covered": float(np.mean(~(low > true) & ~(high < true))),
                    "open": float(np.mean(~both)),
                    "claimed": float(np.mean(both)) if name in REGIMES else np.nan,
                    "there": there if name in REGIMES else None,
                }
            )
    return pd.DataFrame(rows)


def true_value(cell: Cell, name: str, tolerance: float) -> tuple[float, bool]:
    """The logarithm of a quantity on the true curve, and whether it lies where it was tested (of
    perfect scaling also: whether the smallest batch size is within it)."""
    logs = np.log(np.array(cell.batch_sizes))
    tested = q.Range(first=logs[:1], last=logs[-1:], tolerance=tolerance)
    params, none = _truth(cell)[None], np.array([cell.slope != 1.0])
    true = float(q.value(QUANTITIES[name], params, tested, none)[0])
    there = bool(logs[0] <= true <= logs[-1])
    if name == "perfect_scaling_until":
        there &= bool(q.value(q.ONSET, params, tested, none)[0] >= logs[0]) and cell.slope == 1.0
    return true, there


def _truth(cell: Cell) -> Array:
    return theta(cell.min_steps, cell.critical, cell.bend, cell.slope)


def grid_of_cells(
    bends: Sequence[float] = (0.6, 1.0, 3.0), noises: Sequence[float] = (0.02, 0.05, 0.10)
) -> list[Cell]:
    """Twelve doublings that reach both ends, the small end, the large end; and a short grid that
    reaches neither; for each bend and noise."""
    twelve = doubling(12)
    middle = tuple(float(2**i) for i in range(4, 10))
    return [
        Cell(batch_sizes=sizes, critical=critical, bend=bend, noise=noise)
        for bend in bends
        for noise in noises
        for sizes, critical in ((twelve, 45.0), (twelve, 2000.0), (twelve, 1.0), (middle, 90.0))
    ]
