"""The bendable knee: steps to target against batch size, and what is read off it.

    S(B) = S_min (1 + (B_crit / B)^(a k))^(1 / k)

k bends the knee, a is minus the log-log slope at small batches. With a = k = 1 it is the curve of
McCandlish et al. 2018 (arXiv:1812.06162), for which (S/S_min - 1)(E/E_min - 1) = 1. Everything is
in natural logarithms: a parameter vector is ``(log S_min, log B_crit, log k, a)`` along the last
axis, so that noise in log steps is additive and one code serves a single curve and thousands.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEPS, BATCH, BEND, SLOPE = range(4)
"""Places in a parameter vector: log S_min, log B_crit, log k, a."""

BENDS = (0.4, 8.0)
SLOPES = (0.5, 2.0)


def theta(min_steps: float, critical: float, bend: float = 1.0, slope: float = 1.0) -> Array:
    """The parameter vector of a curve given in plain units (steps, examples a batch)."""
    return np.array([np.log(min_steps), np.log(critical), np.log(bend), slope])


def log_steps(x: Array, params: Array) -> Array:
    """log S at log batch sizes ``x`` (..., n) for ``params`` (..., 4); shape (..., n)."""
    k = np.exp(params[..., BEND, None])
    z = params[..., SLOPE, None] * k * (params[..., BATCH, None] - x)
    return np.asarray(params[..., STEPS, None] + np.logaddexp(0.0, z) / k)


def jacobian(x: Array, params: Array) -> tuple[Array, Array]:
    """``log_steps`` and its derivatives by the four parameters: (..., n) and (..., n, 4)."""
    k = np.exp(params[..., BEND, None])
    a = params[..., SLOPE, None]
    away = params[..., BATCH, None] - x
    z = a * k * away
    bend = np.logaddexp(0.0, z) / k
    share = sigmoid(z)
    slopes = np.empty((*z.shape, 4))
    slopes[..., STEPS] = 1.0
    slopes[..., BATCH] = a * share
    slopes[..., BEND] = a * away * share - bend
    slopes[..., SLOPE] = away * share
    return params[..., STEPS, None] + bend, slopes


def sigmoid(z: Any) -> Any:
    """1 / (1 + e^-z), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def excess(params: Array, tolerance: float) -> tuple[Array, Array, Array]:
    """log((1 + tolerance)^k - 1), its derivative by log k, and the half width it gives, (...).

    The half width u is the distance in log B between B_crit and the ends of diminishing returns:
    S = (1 + tolerance) S_min at log B_crit + u, and for a = 1 E = (1 + tolerance) S_min B_crit at
    log B_crit - u. From k = log 2 / log(1 + tolerance) on the two would cross: u is 0 there.
    """
    k = np.exp(params[..., BEND])
    growth = k * np.log1p(tolerance)
    over = np.log(np.expm1(growth))
    by_bend = growth * np.exp(growth) / np.expm1(growth)
    return over, by_bend, -np.minimum(over, 0.0) / (params[..., SLOPE] * k)


def sharp(bend: float, tolerance: float) -> bool:
    """Whether the knee is so sharp that no diminishing returns are left at this tolerance."""
    return bool(bend * np.log1p(tolerance) >= np.log(2.0))


def least_examples_at(params: Array, first: Array, last: Array) -> Array:
    """log B at which the fitted B·S is least over the tested range, for any slope a; (...).

    d log E / d log B = 1 - a sigmoid(a k (log B_crit - log B)): E rises throughout for a <= 1.
    """
    a = params[..., SLOPE]
    steep = np.maximum(a, 1.0 + 1e-12)
    turn = params[..., BATCH] + np.log(steep - 1.0) / (a * np.exp(params[..., BEND]))
    return np.where(a > 1.0, np.clip(turn, first, last), first)
