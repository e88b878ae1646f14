"""The noisy quadratic model without sampling: laws of the recursion, and the published table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads import nqm

BATCH_SIZES = [2**2, 2**6, 2**8, 2**10, 2**12, 2**14, 2**16, 2**20]
SGD = [1_507_367, 95_759, 25_880, 10_609, 8_117, 7_447, 7_309, 7_268]
HEAVY_BALL = [1_333_443, 83_186, 20_969, 5_203, 1_280, 349, 208, 178]
GRIDS = {
    "sgd": {},
    "heavy_ball": {
        "learning_rates": nqm.HEAVY_BALL_LEARNING_RATES,
        "momenta": nqm.MOMENTA,
    },
}


def test_the_spectrum_is_the_quantized_harmonic_one() -> None:
    h, counts = nqm.spectrum()
    assert counts.sum() == 10_000
    assert (len(h), h[0], h[-1]) == (84, 1e-4, 1.0)
    assert 0.5 * h @ counts == pytest.approx(4.7025, abs=5e-5)
    assert nqm.expected_loss([0], learning_rate=0.1, batch_size=8) == pytest.approx(4.7025, 1e-4)


@pytest.mark.parametrize(("grid", "table"), [("sgd", SGD), ("heavy_ball", HEAVY_BALL)])
def test_the_published_table(grid, table) -> None:
    """Within 0.1 % or two steps."""
    found = nqm.tune(BATCH_SIZES, **GRIDS[grid])
    for batch_size, tuned, steps in zip(BATCH_SIZES, found, table, strict=True):
        assert tuned.batch_size == batch_size
        assert tuned.steps is not None
        assert abs(tuned.steps - steps) <= max(2, 1e-3 * steps), batch_size


def test_the_answer_is_the_last_step_above_the_goal() -> None:
    for tuned in nqm.tune([256, 2**14], **GRIDS["heavy_ball"]):
        assert tuned.steps is not None
        around = tuned.steps + np.arange(0, 30)
        loss = nqm.expected_loss(
            around,
            learning_rate=tuned.learning_rate,
            momentum=tuned.momentum,
            batch_size=tuned.batch_size,
        )
        assert loss[0] > nqm.GOAL
        assert (loss[1:] <= nqm.GOAL).all()


def test_a_goal_below_the_noise_is_never_reached() -> None:
    assert nqm.tune([1], learning_rates=np.array([0.1]), goal=1e-3)[0].steps is None


@settings(max_examples=40, deadline=None)
@given(
    learning_rate=st.floats(1e-3, 1.9),
    batch_size=st.integers(1, 2**16),
    steps=st.integers(0, 500),
)
def test_sgd_is_the_closed_form(learning_rate, batch_size, steps) -> None:
    h, counts = nqm.spectrum()
    left = (1 - learning_rate * h) ** (2 * steps)
    floor = learning_rate * h / (2 * batch_size * (2 - learning_rate * h))
    expected = counts @ (left * h / 2 + (1 - left) * floor)
    found = nqm.expected_loss([steps], learning_rate=learning_rate, batch_size=batch_size)
    assert found[0] == pytest.approx(expected, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    learning_rate=st.floats(1e-3, 1.9),
    momentum=st.floats(0, 0.99),
    batch_size=st.integers(1, 2**16),
    preconditioner=st.floats(-0.2, 0.0),
)
def test_the_stationary_state_stays(learning_rate, momentum, batch_size, preconditioner) -> None:
    h, _ = nqm.spectrum()
    rate = nqm.rates(learning_rate, h, preconditioner)
    assert nqm.stable(rate, momentum, h)
    end = nqm.stationary(rate, momentum, batch_size, h)
    noise = (rate**2 * h / batch_size)[:, None]
    moved = (nqm.transition(rate, momentum, h) @ end[..., None])[..., 0] + noise
    np.testing.assert_allclose(moved, end, rtol=1e-6, atol=1e-15)


def test_stability_ends_where_the_theory_says() -> None:
    h = np.array([1.0])
    for momentum in (0.0, 0.5, 0.9):
        for factor, expected in ((0.999, True), (1.001, False)):
            rate = np.array([2 * (1 + momentum) * factor])
            grows = max(abs(np.linalg.eigvals(nqm.transition(rate, momentum, h)[0]))) >= 1
            assert nqm.stable(rate, momentum, h) == expected == (not grows)


def test_a_preconditioner_helps_where_noise_does_not_rule() -> None:
    plain, better = (
        nqm.tune([2**16], learning_rates=np.logspace(-3, 0.3, 40), preconditioner=p)[0].steps
        for p in (0.0, 0.5)
    )
    assert plain is not None
    assert better is not None
    assert better < plain / 5
