"""The batched solver against scipy's, and rows that do not know of each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import least_squares

from analysis.fit.knee import log_steps, theta
from analysis.fit.least_squares import Data, bounds, fit
from tests.marks import quick

X = np.log(2.0) * np.arange(12.0)


def noisy(count: int, *, sloped: bool, seed: int) -> Data:
    """Curves of all kinds of bends and places of the knee."""
    rng = np.random.default_rng(seed)
    x = np.tile(X, (count, 1))
    params = np.stack(
        [
            theta(100, np.exp(rng.uniform(-1, 9)), np.exp(rng.uniform(-0.7, 1.6)))
            for _ in range(count)
        ]
    )
    y = log_steps(x, params) + rng.normal(0, 0.07, x.shape)
    every = np.ones(count, dtype=bool)
    return Data(x=x, y=y, weight=np.ones_like(x), bent=every, sloped=every & sloped, tolerance=0.2)


@pytest.mark.parametrize("sloped", quick([False, True], 1))
def test_no_worse_than_a_slow_twin_from_many_starts(sloped: bool) -> None:
    data = noisy(12, sloped=sloped, seed=3)
    _, sse = fit(data)
    low, high = bounds(data)
    free = 4 if sloped else 3
    for i in range(len(sse)):
        twin = min(
            2
            * least_squares(
                lambda v, i=i: data.y[i] - log_steps(X, np.append(v, [1.0] * (4 - free))),
                [4.6, batch, np.log(bend), 1.0][:free],
                bounds=(low[i][:free], high[i][:free]),
            ).cost
            for bend in (0.6, 1.5, 5.0)
            for batch in (0.0, 2.5, 5.0, 8.0)
        )
        assert sse[i] <= twin * 1.001


def test_exact_curves_are_recovered() -> None:
    params = np.stack([theta(100, 64, k) for k in (0.6, 1.0, 3.0)])
    x = np.tile(X, (3, 1))
    every = np.ones(3, dtype=bool)
    data = Data(
        x=x, y=log_steps(x, params), weight=np.ones_like(x), bent=every, sloped=~every,
        tolerance=0.2,
    )  # fmt: skip
    found, sse = fit(data)
    assert found == pytest.approx(params, abs=1e-4)
    assert sse.max() < 1e-9


def test_a_row_does_not_know_of_the_others() -> None:
    data = noisy(20, sloped=False, seed=4)
    together, _ = fit(data)
    alone = np.concatenate([fit(data.take(np.array([i])))[0] for i in range(20)])
    assert alone == pytest.approx(together, rel=1e-6, abs=1e-6)


def test_points_of_weight_zero_are_not_there() -> None:
    data = noisy(5, sloped=False, seed=5)
    weight = data.weight.copy()
    weight[:, -3:] = 0
    fewer = Data(
        x=data.x[:, :-3], y=data.y[:, :-3], weight=weight[:, :-3], bent=data.bent,
        sloped=data.sloped, tolerance=0.2,
    )  # fmt: skip
    masked = Data(
        x=data.x, y=np.where(weight > 0, data.y, 99.0), weight=weight, bent=data.bent,
        sloped=data.sloped, tolerance=0.2,
    )  # fmt: skip
    assert fit(masked)[1] == pytest.approx(fit(fewer)[1], rel=1e-9)
