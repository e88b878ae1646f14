"""Curves with a known answer: a true knee, a noise level and a grid of batch sizes.

Each curve draws normal noise in log steps at every point (run-to-run scatter and search luck are
both of that kind) and is analysed exactly as a measured one. ``validation`` does it to tens of
thousands and counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.fit import knee as q
from analysis.fit.estimate import Estimate, estimate
from analysis.fit.knee import QUANTITIES, Array, log_steps, theta


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


def draw(cell: Cell, curves: int, seed: int) -> tuple[Array, Array]:
    """Log batch sizes and log steps of ``curves`` draws of ``cell``, (curves, n) each; the
    generator is numpy's default, seeded ``seed``."""
    rng = np.random.default_rng(seed)
    x = np.log(np.repeat(cell.batch_sizes, cell.repeats))
    x = np.tile(x, (curves, 1))
    return x, log_steps(x, _truth(cell)) + rng.normal(0.0, cell.noise, x.shape)


def simulate(
    cell: Cell, curves: int, seed: int, *, tolerance: float = 0.2, level: float = 0.9
) -> Estimate:
    """Analyse ``curves`` draws of ``cell``."""
    x, y = draw(cell, curves, seed)
    return estimate(x, y, np.ones_like(x), tolerance=tolerance, level=level)


def true_value(cell: Cell, name: str, tolerance: float) -> float:
    """The logarithm of a quantity on the true curve."""
    logs = np.log(np.array(cell.batch_sizes))
    tested = q.Range(first=logs[:1], last=logs[-1:], tolerance=tolerance)
    params, none = _truth(cell)[None], np.array([cell.slope != 1.0])
    return float(q.value(QUANTITIES[name], params, tested, none)[0])


def _truth(cell: Cell) -> Array:
    return theta(cell.min_steps, cell.critical, cell.bend, cell.slope)
