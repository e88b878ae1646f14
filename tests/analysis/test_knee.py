"""The knee, its derivatives, and quantities as constraints."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.fit import knee as q
from analysis.fit.knee import jacobian, log_steps, sharp, theta

X = np.log(2.0) * np.arange(12.0)
KINDS = (q.CRITICAL, q.MIN_STEPS, q.MIN_EXAMPLES, q.PERFECT, q.MAXIMAL, q.ONSET)

knees = st.tuples(
    st.floats(5, 5000),
    st.floats(0.5, 5000),
    st.floats(0.41, 7.9),
    st.one_of(st.just(1.0), st.floats(0.6, 1.8)),
).map(lambda four: theta(*four))


def span(count: int = 1, tolerance: float = 0.2) -> q.Range:
    return q.Range(first=np.full(count, X[0]), last=np.full(count, X[-1]), tolerance=tolerance)


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


@given(knees, st.sampled_from(KINDS), st.floats(0.05, 0.95))
def test_a_held_quantity_has_the_value_it_is_held_at(
    params: np.ndarray, kind: int, share: float
) -> None:
    sloped = np.array([params[3] != 1.0])
    if kind == q.PERFECT and sloped[0]:
        return  # not defined: such a curve never scales perfectly
    at = np.array([share * X[-1]])
    held, _ = q.hold(np.array([kind]), at, params[None], span(), sloped)
    if kind == q.MIN_EXAMPLES and sloped[0]:
        at = np.array([np.log(1e4)])
        held, _ = q.hold(np.array([kind]), at, params[None], span(), sloped)
    assert q.value(kind, held, span(), sloped) == pytest.approx(at, abs=1e-8)


@given(knees, st.sampled_from(KINDS), st.floats(0.05, 0.95))
def test_derivatives_of_the_given_up_parameter(params: np.ndarray, kind: int, share: float) -> None:
    sloped = np.array([params[3] != 1.0])
    if kind == q.PERFECT and sloped[0]:
        return
    at, kinds = np.array([share * X[-1]]), np.array([kind])
    place = q.given_up(kinds)[0].argmax()
    _, by = q.hold(kinds, at, params[None], span(), sloped)
    free = [i for i in (range(4) if sloped[0] else range(3)) if i != place]
    for i in free:
        ends = []
        for sign in (-1, 1):
            moved = params.copy()
            moved[i] += sign * 1e-6
            ends.append(q.hold(kinds, at, moved[None], span(), sloped)[0][0, place])
        jumps = abs(ends[1] - ends[0]) > 1e-3  # across a kink, where either side will do
        assert jumps or by[0, i] == pytest.approx((ends[1] - ends[0]) / 2e-6, rel=2e-3, abs=2e-3)


def test_ends_of_diminishing_returns() -> None:
    """At k = 1: S = 1.2 S_min at 5 B_crit, and, of the examples at the smallest batch size B0,
    1.2 times at 1.2 B0 + 0.2 B_crit (Zhang et al. 2024, B* = (r - 1) b/a + r B0)."""
    params, none = theta(100, 64)[None], np.array([False])
    assert np.exp(q.value(q.MAXIMAL, params, span(), none)) == pytest.approx([320])
    assert np.exp(q.value(q.PERFECT, params, span(), none)) == pytest.approx([1.2 + 12.8])
    assert np.exp(q.value(q.ONSET, params, span(), none)) == pytest.approx([12.8])


def test_the_ends_meet_at_b_crit_from_k_3_8_on() -> None:
    assert not sharp(3.79, 0.2)
    assert sharp(3.81, 0.2)
    params, none = theta(100, 64, 5.0)[None], np.array([False])
    for kind in (q.MAXIMAL, q.PERFECT, q.ONSET):
        assert np.exp(q.value(kind, params, span(), none)) == pytest.approx([64])


def test_least_examples_of_a_steep_curve_lie_inside() -> None:
    params, sloped = theta(100, 64, 1.0, 1.5)[None], np.array([True])
    fine = np.linspace(X[0], X[-1], 20001)
    least = (fine + log_steps(fine, params[0])).min()
    assert q.value(q.MIN_EXAMPLES, params, span(), sloped) == pytest.approx([least])
