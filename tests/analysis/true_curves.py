"""True curves over a tested range, what is true of them, and points with noise about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from analysis.fit.convex import Points
from analysis.fit.interval import QUANTITIES
from analysis.fit.locate import Located, locate

LogSteps = Callable[[np.ndarray], np.ndarray]
"""Log steps at log batch sizes (n,)."""

TOLERANCE = 0.2


def knee(critical: float, bend: float = 1.0, slope: float = 1.0) -> LogSteps:
    """1,000 (1 + (B_crit/B)^(a k))^(1/k)."""
    return lambda x: np.log(1000) + np.logaddexp(0, slope * bend * (np.log(critical) - x)) / bend


def two_lines(corner: float, change: float) -> LogSteps:
    """Perfect scaling, then steps that change by a factor of 1 + ``change`` with each doubling."""
    slope, at = np.log2(1 + change), np.log(corner)
    return lambda x: np.log(1000) + np.logaddexp(at - x, slope * (x - at))


def penalized(critical: float, small: float) -> LogSteps:
    """McCandlish's knee times 1 + ``small``/B."""
    return lambda x: knee(critical)(x) + np.log1p(small * np.exp(-x))


def doublings(count: int, by: float = 2.0) -> np.ndarray:
    """Log batch sizes from 1 on."""
    return np.log(by) * np.arange(count)


def noisy(
    curve: LogSteps, x: np.ndarray, noise: float | np.ndarray, seed: int, *, known: bool = False
) -> Points:
    """Points at log batch sizes ``x`` with normal noise; ``known``: its variance is."""
    deviation = np.broadcast_to(noise, x.shape)
    y = curve(x) + deviation * np.random.default_rng(seed).normal(size=len(x))
    return Points(x=x, y=y, variance=np.square(deviation) * known)


def located(points: Points) -> Located:
    return locate(points, tolerance=TOLERANCE)


def truth(curve: LogSteps, x: np.ndarray) -> Mapping[str, float]:
    """The logs of the five quantities of a curve over the range of ``x``, by a fine grid."""
    at = np.linspace(x[0], x[-1], 20_001)
    steps = curve(at)
    examples = steps + at
    return {
        "perfect_scaling_until": float(at[examples <= examples.min() + np.log1p(TOLERANCE)][-1]),
        "maximal_parallelism_from": float(at[steps <= steps.min() + np.log1p(TOLERANCE)][0]),
        "critical_batch_size": float(examples.min() - steps.min()),
        "min_steps": float(steps.min()),
        "min_examples": float(examples.min()),
    }


def holds(ends: tuple[float, float, float], value: float) -> bool:
    """Whether an interval does; an end that is open (NaN) holds everything."""
    _, low, high = ends
    return not (low > value + 1e-9) and not (high < value - 1e-9)


def coverage(
    curve: LogSteps, x: np.ndarray, noise: float | np.ndarray, seeds: int, *, known: bool = False
) -> dict[str, float]:
    """The share of ``seeds`` measurements whose interval at 90 % holds the truth, of each
    quantity."""
    true = truth(curve, x)
    found = [located(noisy(curve, x, noise, seed, known=known)) for seed in range(seeds)]
    return {
        name: float(np.mean([holds(each.ends(name, 0.9), true[name]) for each in found]))
        for name in QUANTITIES
    }
