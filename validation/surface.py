"""A response surface whose searches have a known answer.

Steps to target at batch size B of a point u of the unit cube (the learning rate first, in log
scale, then other metaparameters) are

    T = S(B) exp(w Σ_j (u_j - c_j)² + σ ε),      S(B) = S_min (1 + B_crit/B),

ε ~ N(0, 1) the trial's seed. With s = B/(B + B_crit) the best learning rate is at c_1 = 0.3 + 0.3 s
(in proportion to B, then level), the others at c_j = 0.45 + 0.1 s, and the bowl narrows from w = 12
to 18 at large batches. Learning rates more than 0.25 above c_1 diverge within 20 steps.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from analysis.fit.knee import Array, sigmoid
from validation import exact
from validation.exact import LogSteps, between

LEAST, CRITICAL = 100.0, 45.0
SIZES = tuple(2**i for i in range(12))
BUDGET = 4.0
"""Times S(B) that a trial may take: less than many a point of the space would need."""
RATIO = 1.05
DIVERGES = 0.25
FRESH = 4096
"""Searches whose median is the truth."""


@dataclass(frozen=True, kw_only=True)
class Surface:
    """Tuned dimensions, and the standard deviation σ of log steps from seed to seed."""

    dimensions: int
    noise: float


def best_steps(x: Array) -> Array:
    """log S at log batch sizes."""
    return np.asarray(np.log(LEAST) + np.logaddexp(0.0, np.log(CRITICAL) - x))


def excess(u: Array, x: Array) -> tuple[Array, NDArray[np.bool_]]:
    """How far log steps at points ``u`` (…, d) lie above the bottom of the bowl at log batch size
    ``x``, and which of them diverge; (…)."""
    s = sigmoid(x - np.log(CRITICAL))
    centre = np.full(u.shape[-1], 0.45) + 0.1 * s
    centre[0] = 0.3 + 0.3 * s
    return 12.0 * (1.0 + 0.5 * s) * np.square(u - centre).sum(-1), u[..., 0] > centre[0] + DIVERGES


def points(dimensions: int, count: int, seed: int) -> Array:
    """The first ``count`` points of a scrambled Sobol sequence, (count, d)."""
    from scipy.stats import qmc

    draw = np.random.Generator(np.random.PCG64(seed))
    sobol = qmc.Sobol(dimensions, scramble=True, seed=draw)
    return np.asarray(sobol.random_base2((count - 1).bit_length()))[:count]


def rows(n: int) -> int:
    """Points that hold ``n`` feasible ones but for a chance in a million."""
    return 4 * n


def looks(budget: int) -> NDArray[np.int64]:
    """The evaluation grid: 1, each the last times RATIO rounded up, and the budget."""
    steps, step = [], 1
    while step < budget:
        steps.append(step)
        step = max(step + 1, ceil(step * RATIO))
    return np.array([*steps, budget])


@functools.cache
def median_of_searches(surface: Surface, n: int, fresh: int = FRESH) -> LogSteps:
    """log of the median, over ``fresh`` searches, of the best of their first ``n`` feasible trials
    (missing the budget counts as infinite), as a function of log batch size.

    The same points and seeds serve every batch size, so that the curve is smooth: what it is above
    ``best_steps`` is interpolated between every second doubling, and level from 2¹⁰ times the
    tested ones on.
    """
    rng = np.random.default_rng([1, surface.dimensions, n])
    seeds = rng.integers(2**62, size=fresh)
    x = np.log(2.0) * np.arange(-10, len(SIZES) + 11, 2)
    least = np.full((len(x), fresh), np.inf)
    for i, seed in enumerate(seeds):
        u = points(surface.dimensions, rows(n), int(seed))
        luck = surface.noise * rng.normal(size=len(u))
        for j, at in enumerate(x):
            above, diverges = excess(u, at)
            some = (above + luck)[~diverges][:n]
            least[j, i] = some.min()
    least[least > np.log(BUDGET)] = np.inf
    above_best = between(x, np.median(least, axis=1), small=0.0)
    return lambda at: best_steps(at) + above_best(at)


@functools.cache
def truth(surface: Surface, n: int) -> dict[str, float]:
    """The five quantities of the median best of ``n``, in natural logs."""
    first, last = np.log(SIZES[0]), np.log(SIZES[-1])
    return exact.quantities(median_of_searches(surface, n), first, last, 0.2)
