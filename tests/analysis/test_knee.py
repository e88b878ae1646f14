"""The knee: its derivatives, its fit against scipy's, and what it is called."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import least_squares

from analysis.fit.convex import Points
from analysis.fit.knee import BATCH, BENDS, REACH, SLOPES, Knee, fit, jacobian, log_steps, theta
from tests.marks import quick

X = np.log(2.0) * np.arange(12.0)

knees = st.tuples(
    st.floats(5, 5000),
    st.floats(0.5, 5000),
    st.floats(0.41, 7.9),
    st.one_of(st.just(1.0), st.floats(0.6, 1.8)),
).map(lambda four: theta(*four))


def noisy(count: int, *, seed: int) -> np.ndarray:
    """Curves of all kinds of bends and places of the knee, log steps (count, 12)."""
    rng = np.random.default_rng(seed)
    params = np.stack(
        [
            theta(100, np.exp(rng.uniform(-1, 9)), np.exp(rng.uniform(-0.7, 1.6)))
            for _ in range(count)
        ]
    )
    return log_steps(np.tile(X, (count, 1)), params) + rng.normal(0, 0.07, (count, 12))


def points(y: np.ndarray, x: np.ndarray = X) -> Points:
    return Points(x=x, y=y, variance=np.zeros(len(x)))


def test_mccandlish_identity_at_k_1() -> None:
    """(S/S_min - 1)(E/E_min - 1) = 1 (McCandlish et al. 2018, eq. 2.11)."""
    batch = np.exp(X)
    steps = np.exp(log_steps(X, theta(100, 64)))
    assert (steps / 100 - 1) * (batch * steps / 6400 - 1) == pytest.approx(np.ones(12))


@given(knees)
def test_derivatives_are_those_of_finite_differences(params: np.ndarray) -> None:
    fitted, slopes = jacobian(X, params)
    assert fitted == pytest.approx(log_steps(X, params))
    for i in range(4):
        step = np.zeros(4)
        step[i] = 1e-5
        secant = (log_steps(X, params + step) - log_steps(X, params - step)) / 2e-5
        assert slopes[:, i] == pytest.approx(secant, abs=1e-5)


@pytest.mark.parametrize("sloped", quick([False, True], 1))
def test_no_worse_than_a_slow_twin_from_many_starts(sloped: bool) -> None:
    y = noisy(12, seed=3)
    weights = np.linspace(0.5, 2.0, 12)
    _, sse = fit(np.tile(X, (12, 1)), y, weights, sloped=sloped)
    free = 4 if sloped else 3
    low = [-np.inf, X[0] - REACH, np.log(BENDS[0]), SLOPES[0]]
    high = [np.inf, X[-1] + REACH, np.log(BENDS[1]), SLOPES[1]]

    def residuals(v: np.ndarray, row: np.ndarray) -> np.ndarray:
        params = np.append(v, [1.0] * (4 - free))
        return np.asarray((row - log_steps(X, params)) * np.sqrt(weights))

    for i in range(len(sse)):
        twin = min(
            2
            * least_squares(
                residuals, [4.6, batch, np.log(bend), 1.0][:free],
                bounds=(low[:free], high[:free]), args=(y[i],),
            ).cost
            for bend in (0.6, 1.5, 5.0)
            for batch in (0.0, 2.5, 5.0, 8.0)
        )  # fmt: skip
        assert sse[i] <= twin * 1.001


def test_exact_curves_are_recovered() -> None:
    params = np.stack([theta(100, 64, k) for k in (0.6, 1.0, 3.0)])
    x = np.tile(X, (3, 1))
    found, sse = fit(x, log_steps(x, params))
    assert found == pytest.approx(params, abs=1e-4)
    assert sse.max() < 1e-9


def test_a_row_does_not_know_of_the_others() -> None:
    y = noisy(20, seed=4)
    together, _ = fit(np.tile(X, (20, 1)), y)
    alone = np.concatenate([fit(X[None], row[None])[0] for row in y])
    assert alone == pytest.approx(together, rel=1e-6, abs=1e-6)


def test_points_of_weight_zero_are_not_there() -> None:
    y = noisy(5, seed=5)
    weights = np.ones(12)
    weights[-3:] = 0
    masked = np.where(weights > 0, y, 99.0)
    x = np.tile(X, (5, 1))
    fewer = fit(x[:, :-3], y[:, :-3])[1]
    assert fit(x, masked, weights)[1] == pytest.approx(fewer, rel=1e-6)


def test_its_form_says_what_is_free_and_needed() -> None:
    noise = np.random.default_rng(1).normal(0, 0.02, 12)

    def form(count: int, *params: float, steep: bool = False) -> str:
        y = log_steps(X[:count], theta(*params)) + noise[:count]
        return Knee.of(points(y, X[:count]), steep=steep).form

    assert form(12, 100, 40) == "McCandlish's knee"
    assert form(12, 100, 40, 3.0) == "bent knee"
    assert form(12, 100, 60, 1.5, 0.7) == "knee with a slope of its own"
    assert form(12, 100, 40, steep=True) == "knee with a slope of its own"
    assert form(5, 100, 4, 1.0, 0.7, steep=True) != "knee with a slope of its own"
    assert form(4, 100, 4, 3.0) == "knee of fixed bend"


def test_its_asymptotes_and_what_is_printed() -> None:
    knee = Knee.of(points(log_steps(X, theta(100, 40, 2.0))))
    assert knee.asymptotes() == pytest.approx(
        {"min_steps": 100, "critical_batch_size": 40, "min_examples": 4000}, rel=1e-3
    )
    printed = knee.to_dict()
    assert list(printed) == [
        "form", "k", "a", "min_steps", "critical_batch_size", "noise", "points",
    ]  # fmt: skip
    assert (printed["k"], printed["a"]) == pytest.approx((2.0, 1.0), rel=1e-3)
    assert printed["points"] == 12
    assert printed["noise"] < 1e-3


def test_replicates_scatter_as_the_noise_does() -> None:
    """By the delta method: the covariance of least squares, widened by the noise's own
    uncertainty (a t of 9 degrees of freedom)."""
    knee = Knee.of(points(log_steps(X, theta(100, 40)) + 0.05 * np.sin(2.4 * np.arange(12))))
    drawn = knee.replicates(800, seed=0)
    assert drawn.tolist() == knee.replicates(800, seed=0).tolist()
    assert drawn.tolist() != knee.replicates(800, seed=1).tolist()
    _, slopes = jacobian(X, knee.params)
    covariance = np.linalg.inv(slopes[:, :3].T @ slopes[:, :3])
    expected = knee.noise * np.sqrt(covariance[BATCH, BATCH] * 9 / 7)
    assert drawn[:, BATCH].std() == pytest.approx(expected, rel=0.25)
