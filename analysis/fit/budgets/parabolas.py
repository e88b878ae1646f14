"""Parabolas of loss in log B, one a budget, their noise, and intervals of their vertices.

The noise of a loss may change with the budget: its variance is a power of D, fitted to the squared
scatter of all parabolas as gamma variables with a log link (McCullagh & Nelder 1989, Generalized
Linear Models, §8 and §10). The variance at a budget has as many degrees of freedom as a chi-squared
variable of the same relative error. Of fewer than three budgets, or few points, it is the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.fit.convex import Array

WITHIN = np.log(4.0) * (1 + 1e-9)
"""The distance in log B from the vertex up to which batch sizes count."""
FEWEST = 5
"""Batch sizes that count at least, where there are so many."""
ENOUGH = 6
"""Degrees of freedom of all parabolas from which their noise may change with the budget."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The variance of one loss, and the degrees of freedom of that."""

    variance: float
    freedom: float

    def quantile(self, level: float) -> float:
        """Student's, for an interval of this coverage."""
        from scipy.special import stdtrit  # a third of a second to import: not at start

        return float(stdtrit(self.freedom, 0.5 + level / 2))


UNKNOWN = Noise(variance=float("nan"), freedom=float("nan"))


@dataclass(frozen=True)
class Parabola:
    """y = a + b u + c u² over u = x - center, by least squares."""

    center: float
    counted: np.ndarray
    coefficients: Array
    spread: Array
    squares: float
    spare: int

    @property
    def vertex(self) -> float:
        _, b, c = self.coefficients
        return self.center - b / (2 * c) if c > 0 else float("nan")

    def slope(self, x: Array) -> tuple[Array, Array]:
        """The slope at ``x`` (…), and its variance over that of a loss; (…)."""
        _, b, c = self.coefficients
        u, v = np.asarray(x) - self.center, self.spread
        return b + 2 * c * u, v[1, 1] + 4 * u * v[1, 2] + 4 * u * u * v[2, 2]

    def fieller(self, variance: float, quantile: float) -> tuple[float, float]:
        """The ends of the vertex's interval; infinite where it is open."""
        _, b, c = self.coefficients
        v = quantile**2 * variance * self.spread
        square = 4 * (c * c - v[2, 2])
        middle, last = 4 * (b * c - v[1, 2]), b * b - v[1, 1]
        if c <= 0 or square <= 0:
            return -np.inf, np.inf
        root = np.sqrt(max(middle**2 - 4 * square * last, 0.0))
        low, high = (-middle - root) / (2 * square), (-middle + root) / (2 * square)
        return self.center + float(low), self.center + float(high)


def parabola(x: Array, y: Array) -> Parabola:
    """The parabola about its vertex: the batch sizes that count move with it."""
    center = float(x[np.argmin(y)])
    seen: set[bytes] = set()
    while True:
        fit = parabola_at(x, y, center)
        if fit.counted.tobytes() in seen or not np.isfinite(fit.vertex):
            return fit
        seen.add(fit.counted.tobytes())
        center = float(np.clip(fit.vertex, x.min(), x.max()))


def parabola_at(x: Array, y: Array, center: float) -> Parabola:
    """The parabola of the batch sizes that count about ``center``."""
    away = np.abs(x - center)
    near = away <= max(WITHIN, float(np.sort(away)[min(FEWEST, len(x)) - 1]))
    return _least_squares(x, y, near, center)


def whole_parabola(x: Array, y: Array) -> Parabola:
    """The parabola of all batch sizes."""
    return _least_squares(x, y, np.ones(len(x), dtype=bool), float(x.mean()))


def _least_squares(x: Array, y: Array, near: np.ndarray, center: float) -> Parabola:
    u = x[near] - center
    design = np.stack([np.ones_like(u), u, u * u], 1)
    coefficients, *_ = np.linalg.lstsq(design, y[near], rcond=None)
    spread = np.linalg.inv(design.T @ design)
    squares = float(np.square(y[near] - design @ coefficients).sum())
    return Parabola(center, near, coefficients, spread, squares, len(u) - 3)


def pooled(fits: Sequence[Parabola]) -> Noise:
    """The noise of all parabolas together; NaN where none has a degree of freedom."""
    spare = sum(fit.spare for fit in fits)
    if not spare:
        return UNKNOWN
    return Noise(variance=sum(fit.squares for fit in fits) / spare, freedom=spare)


def noises(log_budgets: Array, fits: Sequence[Parabola]) -> list[Noise]:
    """The noise of each parabola, a power of its budget: see above."""
    whole = pooled(fits)
    spare = np.array([fit.spare for fit in fits], dtype=np.float64)
    x = np.asarray(log_budgets, dtype=np.float64)
    if (spare > 0).sum() < 3 or spare.sum() < ENOUGH or not whole.variance > 0:
        return [whole] * len(fits)
    design = np.stack([np.ones_like(x), x - spare @ x / spare.sum()], 1)
    relative = np.array([fit.squares for fit in fits]) / np.maximum(spare, 1.0) / whole.variance
    spread = np.linalg.inv(design.T @ (spare[:, None] * design))
    at = np.zeros(2)
    for _ in range(100):
        log = design @ at
        step = spread @ (design.T @ (spare * (relative * np.exp(-log) - 1.0)))
        at = at + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-10:
            break
    variances = whole.variance * np.exp(design @ at)
    freedom = 1.0 / np.einsum("ij,jk,ik->i", design, spread, design)
    return [
        Noise(variance=float(variance), freedom=float(of_it))
        for variance, of_it in zip(variances, freedom, strict=True)
    ]
