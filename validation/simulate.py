"""Curves with a known answer: a true knee, a noise level and a grid of batch sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.fit.convex import Array
from analysis.fit.knee import log_steps, theta
from validation import exact


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

    @property
    def params(self) -> Array:
        return theta(self.min_steps, self.critical, self.bend, self.slope)


def doubling(count: int, *, by: float = 2.0) -> tuple[float, ...]:
    """Batch sizes 1, ``by``, ``by``² …, ``count`` of them."""
    return tuple(float(by) ** i for i in range(count))


def draw(cell: Cell, curves: int, seed: int) -> tuple[Array, Array]:
    """Log batch sizes and log steps of ``curves`` draws of ``cell``, (curves, n) each; the
    generator is numpy's default, seeded ``seed``."""
    rng = np.random.default_rng(seed)
    x = np.log(np.repeat(cell.batch_sizes, cell.repeats))
    x = np.tile(x, (curves, 1))
    return x, log_steps(x, cell.params) + rng.normal(0.0, cell.noise, x.shape)


def true_value(cell: Cell, name: str, tolerance: float) -> float:
    """The logarithm of a quantity of the true curve over the tested range."""
    first, last = np.log(cell.batch_sizes[0]), np.log(cell.batch_sizes[-1])
    steps = lambda x: log_steps(x, cell.params)  # noqa: E731
    return exact.quantities(steps, float(first), float(last), tolerance)[name]
