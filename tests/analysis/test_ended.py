"""The form of a penalty that ends: its curves against their definition, fits against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from analysis.fit import ended
from analysis.fit.ended import Ended
from analysis.fit.knee import BEST, MEETING, UNTIL

SHAPES = st.tuples(
    st.floats(-6, 4),
    st.floats(-0.8, 1.8),
    st.floats(-1.3, 0.65).filter(lambda log: abs(log) > 1e-3),  # min(c, 1) has a corner at 1
)
X = np.log(2.0) * np.arange(10)


def plain(x: np.ndarray, critical: float, below: float, bend: float, exponent: float) -> np.ndarray:
    """log (S / S_min), from its definition."""
    return np.asarray(
        np.log1p(np.exp(bend * (critical - x))) / bend + np.log1p(np.exp(exponent * (below - x)))
    )


@settings(max_examples=25)
@given(shape=SHAPES)
def test_the_least_examples_are_where_they_are_said_to_be(shape: tuple[float, ...]) -> None:
    params = np.array([shape])
    at = np.linspace(-12, 12, 240_001)
    examples = at + ended.log_steps(params, at[None])[0][0]
    least = examples.min()
    here, _, _ = ended.log_steps(params, np.zeros((1, 1)))
    assert here[0, 0] == pytest.approx(least, abs=1e-6)
    assert ended.distance(MEETING, params, 0.2)[0][0] == pytest.approx(least, abs=1e-6)
    above = at[(at > 0) & (examples > least + np.log(1.2))]
    until = min(above[0] if len(above) else np.inf, least)
    assert ended.distance(UNTIL, params, 0.2)[0][0] == pytest.approx(until, abs=2e-4)


@settings(max_examples=25)
@given(shape=SHAPES)
def test_derivatives_are_those_of_differences(shape: tuple[float, ...]) -> None:
    params, at = np.array([shape]), np.linspace(-6, 6, 7)[None]
    _, by, rate = ended.log_steps(params, at)
    step = 1e-5
    for place in range(3):
        move = np.eye(3)[place] * step
        over, under = (ended.log_steps(params + sign * move, at)[0] for sign in (1, -1))
        assert by[..., place] == pytest.approx((over - under) / (2 * step), abs=1e-5)
        for kind in (BEST, MEETING, UNTIL):
            over, under = (ended.distance(kind, params + sign * move, 0.2)[0] for sign in (1, -1))
            _, slopes = ended.distance(kind, params, 0.2)
            assert slopes[:, place] == pytest.approx((over - under) / (2 * step), abs=1e-4)
    over, under = (ended.log_steps(params, at + sign * step)[0] for sign in (1, -1))
    assert rate == pytest.approx((over - under) / (2 * step), abs=1e-5)


@pytest.fixture(scope="module")
def measured() -> np.ndarray:
    rng = np.random.default_rng(4)
    return np.asarray(7 + plain(X, 4.2, 1.8, 1.3, 0.8) + rng.normal(0, 0.03, len(X)))


def _squares(y: np.ndarray, params: np.ndarray) -> float:
    off = y - plain(X, params[0], params[1], np.exp(params[2]), np.exp(params[3]))
    return float(np.square(off - off.mean()).sum())


def test_the_fit_is_the_least_that_another_optimizer_reaches(measured: np.ndarray) -> None:
    fit = Ended.of(X, measured, 0.2)
    bounds = [(-2, 10), (-8, 8), tuple(np.log(ended.BENDS)), tuple(np.log(ended.EXPONENTS))]
    best = min(
        minimize(
            lambda p: _squares(measured, p), (4, below, 0, exponent), bounds=bounds,
            method="L-BFGS-B",
        ).fun
        for below in (0.0, 2.0)
        for exponent in (-0.7, 0.2)
    )  # fmt: skip
    assert fit.sse == pytest.approx(best, rel=1e-3)


def test_an_interval_ends_where_the_profile_of_another_optimizer_does(
    measured: np.ndarray,
) -> None:
    """The profile of the best batch size: the curve held by a penalty on where its minimum lies."""
    fit = Ended.of(X, measured, 0.2)
    top = fit.sse * 1.8
    low, high = fit.interval(BEST, top)
    assert X[0] < low < fit.value(BEST) < high < X[-1]

    def profile(at: float) -> float:
        def squares(shape: np.ndarray) -> float:
            off = measured - ended.log_steps(shape[None], (X - at)[None])[0][0]
            return float(np.square(off - off.mean()).sum())

        limits = [(-10, 10), tuple(np.log(ended.BENDS)), tuple(np.log(ended.EXPONENTS))]
        return float(
            min(
                minimize(
                    squares, (rise, 0.2, exponent), bounds=limits, method="L-BFGS-B",
                ).fun
                for rise in (-2, 0)
                for exponent in (-0.7, 0.2)
            )
        )  # fmt: skip

    assert profile(low) == pytest.approx(top, rel=0.02)
    assert profile(high) == pytest.approx(top, rel=0.02)


def test_the_minimum_beyond_an_edge_has_an_open_end() -> None:
    y = 7 + plain(X, 12.0, 6.0, 1.3, 0.8)
    low, high = Ended.of(X, y + 0.01 * np.sin(np.arange(len(X)) * 2.4), 0.2).interval(BEST, 0.01)
    assert np.isfinite(low)
    assert high == np.inf
