"""The noisy quadratic model without sampling: its laws, a slow twin, and the published table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validation import nqm

BATCH_SIZES = [2**2, 2**6, 2**8, 2**10, 2**12, 2**14, 2**16, 2**20]
TABLE = {
    "sgd": [1_507_367, 95_759, 25_880, 10_609, 8_117, 7_447, 7_309, 7_268],
    "heavy_ball": [1_333_443, 83_186, 20_969, 5_203, 1_280, 349, 208, 178],
}
SMALL: dict[str, Any] = {
    "dimensions": 100,
    "goal": 0.05,
    "learning_rates": np.logspace(-2.5, 0.2, 12),
}
"""A problem of which every step can be looked at."""


def moments(rule: str, x: np.ndarray, decay: np.ndarray, noise: np.ndarray) -> Iterator[np.ndarray]:
    """E θ² (of ``ema``: of the average) after 0, 1, 2 … steps, by the paper's 3×3 recursion.

    Equations 21 and 38 of arXiv:1907.04164, the latter's average being the sum φ ← γφ + θ. Arrays
    are (G, K) or (G, 1), a row a point of the grid.
    """
    one, none, b, kept = np.ones_like(x), np.zeros_like(x), decay * np.ones_like(x), 1 - x
    if rule == "ema":
        state = np.stack([one, 1 / (1 - b) ** 2, 1 / (1 - b)])
        rows = [[kept**2, none, none], [kept**2, b**2, 2 * b * kept], [kept**2, none, b * kept]]
        place, scale = 1, (1 - b) ** 2
    else:
        state = np.stack([one, none, none])
        rows = [
            [kept**2, b**2, 2 * kept * b],
            [x**2, b**2, -2 * x * b],
            [-kept * x, b**2, (1 - 2 * x) * b],
        ]
        place, scale = 0, one
    matrix = np.array(rows)
    while True:
        yield state[place] * scale
        state = (matrix * state).sum(1) + noise


def stepped(
    rule: str,
    batch_size: int,
    rate: np.ndarray,
    decay: np.ndarray,
    steps: int,
    *,
    preconditioner: float = 0.0,
    dimensions: int = nqm.DIMENSIONS,
) -> np.ndarray:
    """The expected loss after 0 … ``steps`` steps, one after the other, at each learning rate and
    decay (G,), with the preconditioner diag(h^p): α h^-p takes the place of α; (steps + 1, G)."""
    h, counts = nqm.spectrum(dimensions)
    rates = rate[:, None] * h**-preconditioner
    path = moments(rule, rates * h, decay[:, None], rates**2 * h / batch_size)
    return np.array([next(path) @ (0.5 * counts * h) for _ in range(steps + 1)])


def test_the_spectrum_is_the_quantized_harmonic_one() -> None:
    h, counts = nqm.spectrum()
    assert counts.sum() == 10_000
    assert (len(h), h[0], h[-1]) == (84, 1e-4, 1.0)
    assert 0.5 * h @ counts == pytest.approx(4.7025, abs=5e-5)


@pytest.mark.parametrize("rule", TABLE)
def test_the_published_table(rule: str) -> None:
    """Within 0.1 % or two steps."""
    found = nqm.tune(BATCH_SIZES, rule)
    for batch_size, tuned, steps in zip(BATCH_SIZES, found, TABLE[rule], strict=True):
        assert tuned.batch_size == batch_size
        assert tuned.steps is not None
        assert abs(tuned.steps - steps) <= max(2, 1e-3 * steps), batch_size


@pytest.mark.parametrize("rule", nqm.RULES)
def test_the_curve_is_that_of_stepping_through_every_point_of_the_grid(rule: str) -> None:
    decays = np.zeros(1) if rule == "sgd" else np.array([0.0, 0.5, 0.9])
    sizes = [16, 256, 4096]
    rate, decay = (part.ravel() for part in np.meshgrid(SMALL["learning_rates"], decays))
    found = nqm.tune(sizes, rule, **SMALL, decays=decays)
    for size, tuned in zip(sizes, found, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            loss = stepped(rule, size, rate, decay, 3000, dimensions=100)
        last = np.array([np.flatnonzero(~(path <= 0.05))[-1] for path in loss.T])
        assert tuned.steps == last.min() < 3000
        (at,) = np.flatnonzero((rate == tuned.learning_rate) & (decay == tuned.decay))
        assert last[at] == tuned.steps


@settings(max_examples=40)
@given(
    learning_rate=st.floats(1e-3, 1.9), batch_size=st.integers(1, 2**16), steps=st.integers(0, 500)
)
def test_sgd_is_the_closed_form(learning_rate: float, batch_size: int, steps: int) -> None:
    h, counts = nqm.spectrum()
    left = (1 - learning_rate * h) ** (2 * steps)
    floor = learning_rate * h / (2 * batch_size * (2 - learning_rate * h))
    expected = counts @ (left * h / 2 + (1 - left) * floor)
    found = stepped("sgd", batch_size, np.array([learning_rate]), np.zeros(1), steps)
    assert found[-1] == pytest.approx(expected, rel=1e-9)


@settings(max_examples=40)
@given(system=st.sampled_from([nqm.heavy_ball, nqm.averaged]), decay=st.floats(0, 0.99))
def test_the_stationary_covariance_stays(system, decay: float) -> None:
    x = np.logspace(-4, 0.28, 30)
    found = system(x, decay)
    rest = nqm.Covariance(*found.stationary)
    w, u = found.push
    moved = nqm._after(found.matrix, rest)
    for new, old, noise in zip(moved, rest, (w * w, w * u, u * u), strict=True):
        np.testing.assert_allclose(new + noise, old, rtol=1e-6)


def test_stability_ends_where_the_theory_says() -> None:
    for decay in (0.0, 0.5, 0.9):
        for system, limit in ((nqm.heavy_ball, 2 * (1 + decay)), (nqm.averaged, 2.0)):
            for factor, expected in ((0.999, True), (1.001, False)):
                found = system(np.array([limit * factor]), decay)
                a, b, c, d = (float(part[0]) for part in found.matrix)
                grows = max(abs(np.linalg.eigvals([[a, b], [c, d]]))) >= 1
                assert found.stable == expected == (not grows)


def test_a_goal_below_the_noise_is_never_reached() -> None:
    assert nqm.tune([1], learning_rates=np.array([0.1]), goal=1e-3)[0].steps is None


def test_an_average_helps_where_noise_rules() -> None:
    """As figure 6 of the paper has it: much at small batches, little at large ones."""
    sgd, ema = nqm.tune([2**6, 2**16]), nqm.tune([2**6, 2**16], "ema")
    small, large = (
        one.steps / other.steps
        for one, other in zip(ema, sgd, strict=True)
        if one.steps and other.steps
    )
    assert small < 0.75
    assert 0.95 < large < 1.05
