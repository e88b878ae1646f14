"""Interval ends against a slow twin that knows nothing of constraints: the range of a quantity
over all curves, on a fine grid, whose sum of squares is within the limit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import f as f_distribution

from analysis.fit.estimate import estimate
from analysis.fit.knee import QUANTITIES, log_steps, theta

X = np.log(2.0) * np.arange(12.0)


def brute(y: np.ndarray, tolerance: float, level: float) -> dict[str, tuple[float, float]]:
    """Lower and upper end of each quantity in natural logs, by a grid over k and B_crit."""
    bends = np.linspace(np.log(0.4), np.log(8.0), 300)[:, None, None]
    batch = np.linspace(X[0] - 4, X[-1] + 4, 1200)[None, :, None]
    k = np.exp(bends)
    bend = np.logaddexp(0, k * (batch - X)) / k
    level_ = (y - bend).mean(-1)
    sse = np.square(y - bend - level_[..., None]).sum(-1)
    n = len(y)
    top = sse.min() * (1 + f_distribution.ppf(level, 1, n - 3) / (n - 3))
    within = sse <= top
    reach = np.sqrt(np.maximum(top - sse, 0) / n)[within]
    k, c = (np.broadcast_to(part[..., 0], sse.shape)[within] for part in (k, batch))
    m = level_[within]
    grown = (1 + tolerance) ** k
    over = np.log(grown - 1)
    perfect = np.minimum(np.logaddexp(k * (np.log1p(tolerance) + X[0]), over + k * c) / k, c)
    maximal = c - np.minimum(over, 0) / k
    return {
        "critical_batch_size": (c.min(), c.max()),
        "perfect_scaling_until": (perfect.min(), perfect.max()),
        "maximal_parallelism_from": (maximal.min(), maximal.max()),
        "min_steps": ((m - reach).min(), (m + reach).max()),
        "min_examples": ((m + c - reach).min(), (m + c + reach).max()),
    }


@pytest.mark.parametrize(("bend", "seed"), [(1.0, 1), (0.8, 2), (2.5, 3)])
def test_ends_are_those_of_a_fine_grid(bend: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = log_steps(X, theta(100, 45, bend)) + rng.normal(0, 0.03, 12)
    found = estimate(X[None], y[None], np.ones((1, 12)), tolerance=0.2, level=0.9)
    assert not found.fitted.data.sloped[0]
    assert not found.fitted.left_out.any()
    compared = 0
    for name, (low, high) in brute(y, 0.2, 0.9).items():
        for end, twin in ((found.low[name][0], low), (found.high[name][0], high)):
            if np.isfinite(end):
                assert end == pytest.approx(twin, abs=0.015)
                compared += 1
            else:
                assert not X[0] + 0.015 < twin < X[-1] - 0.015
    assert compared >= 8


@pytest.mark.slow
def test_a_wider_level_holds_a_narrower_one() -> None:
    rng = np.random.default_rng(7)
    x = np.tile(X, (20, 1))
    y = log_steps(x, theta(100, 45)) + rng.normal(0, 0.05, x.shape)
    narrow = estimate(x, y, np.ones_like(x), tolerance=0.2, level=0.5)
    wide = estimate(x, y, np.ones_like(x), tolerance=0.2, level=0.95)
    plain = ~narrow.fitted.data.sloped
    for name in QUANTITIES:
        assert not (wide.low[name] > narrow.low[name])[plain].any()
        assert not (wide.high[name] < narrow.high[name])[plain].any()
