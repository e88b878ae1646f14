"""Random effects: estimates of one quantity, each with an error of its own, that scatter more.

    y_i = x_i · b + u_i + e_i,   e_i normal with deviation s_i, known, and u_i with t, unknown

t² is that of Paule & Mandel 1982 (weights 1/(s_i² + t²) for which the weighted squares sum to their
degrees of freedom, or 0). Intervals are Student's with those degrees of freedom after Knapp &
Hartung 2003 (doi:10.1002/sim.1482), with their factor at least 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.fit.convex import Array


@dataclass(frozen=True, kw_only=True)
class Solved:
    """Coefficients (k,), their standard errors and half widths of their intervals, and t."""

    values: Array
    errors: Array
    by: Array
    scatter: float


def solve(design: Array, y: Array, deviation: Array, *, level: float = 0.9) -> Solved:
    """The model above.

    Args:
        design: x, (n, k) with n > k.
        y, deviation: the estimates and s, (n,).
    """
    from scipy.special import stdtrit  # a third of a second to import: not at start

    spare = design.shape[0] - design.shape[1]

    def weighted(extra: float) -> tuple[Array, Array, float]:
        weight = 1 / (deviation**2 + extra)
        spread = np.asarray(np.linalg.inv(design.T @ (weight[:, None] * design)), dtype=np.float64)
        values = spread @ (design.T @ (weight * y))
        return values, spread, float(weight @ np.square(y - design @ values))

    low, high = 0.0, float(np.square(y - y.mean()).sum()) + 1e-12
    if weighted(0.0)[2] <= spare:
        high = 0.0
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if weighted(middle)[2] > spare else (low, middle)
    values, spread, _ = weighted(high)
    errors = np.sqrt(np.diag(spread))
    return Solved(
        values=values,
        errors=errors,
        by=stdtrit(spare, 0.5 + level / 2) * errors,
        scatter=float(np.sqrt(high)),
    )


def mean(y: Array, deviation: Array, *, level: float = 0.9) -> tuple[float, float, float]:
    """The mean of estimates (n,), n > 1, with the ends of its interval."""
    made = solve(np.ones((len(y), 1)), y, deviation, level=level)
    value, by = float(made.values[0]), float(made.by[0])
    return value, value - by, value + by


_DRAWS = 1000


def predicted(y: Array, deviation: Array, *, level: float = 0.9) -> tuple[float, float]:
    """Where a further y of the same mean is expected, without an error of its own.

    With one t of many the interval is too narrow, since few estimates hardly tell it. So t² is
    drawn from its confidence distribution (Nagashima et al. 2019, doi:10.1177/0962280218773520), by
    the pivot that the weighted squares at the true t are of χ² with n - 1 degrees of freedom; then
    the mean at that t by Student's, and y about it.
    """
    from scipy.special import chdtri, ndtri, stdtrit  # slow to import: not at start

    rng, spare = np.random.default_rng(0), len(y) - 1
    middles = (np.arange(_DRAWS) + 0.5) / _DRAWS
    wanted, student, normal = (
        rng.permutation(values)  # a Latin hypercube
        for values in (chdtri(spare, middles), stdtrit(spare, middles), ndtri(middles))
    )

    def weighted(extra: Array) -> tuple[Array, Array, Array]:
        weight = 1 / (deviation**2 + extra[:, None])
        total = weight.sum(1)
        mean = weight @ y / total
        return mean, total, (weight * np.square(y - mean[:, None])).sum(1)

    low, high = np.zeros(_DRAWS), np.full(_DRAWS, float(np.square(y - y.mean()).sum()) + 1e-12)
    while (above := weighted(high)[2] > wanted).any():
        high[above] *= 4
    for _ in range(60):
        middle = 0.5 * (low + high)
        larger = weighted(middle)[2] > wanted
        low, high = np.where(larger, middle, low), np.where(larger, high, middle)
    mean, total, _ = weighted(high)
    made = mean + student / np.sqrt(total) + np.sqrt(high) * normal
    return float(np.quantile(made, 0.5 - level / 2)), float(np.quantile(made, 0.5 + level / 2))
