"""The quantities by the knee: closed forms, coverage where it is true, and notes where not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import brentq

import analysis.fit.knee_form as knee_form
from analysis import Curve, regimes
from analysis.fit.interval import QUANTITIES
from analysis.fit.knee import log_steps, theta
from analysis.fit.knee_form import by_knee, check_form
from results.errors import ResultsError

Plain = Callable[..., Curve]
SIZES = 2.0 ** np.arange(12)
X = np.log(SIZES)


def truth(params: np.ndarray, tolerance: float) -> dict[str, float]:
    """The quantities by root finding on the curve itself (a = 1)."""
    steps = float(log_steps(np.array([40.0]), params)[0])
    examples = float(log_steps(np.array([-30.0]), params)[0]) - 30

    def passes(x: float, *, of_examples: bool) -> float:
        y = float(log_steps(np.array([x]), params)[0])
        return (y + x - examples if of_examples else y - steps) - np.log1p(tolerance)

    return {
        "perfect_scaling_until": np.exp(brentq(lambda x: passes(x, of_examples=True), -20, 25)),
        "maximal_parallelism_from": np.exp(brentq(lambda x: passes(x, of_examples=False), -20, 25)),
        "critical_batch_size": np.exp(examples - steps),
        "min_steps": np.exp(steps),
        "min_examples": np.exp(examples),
    }


@pytest.mark.parametrize("bend", [0.7, 1.0, 2.5])
@pytest.mark.parametrize("tolerance", [0.2, 0.05])
def test_they_are_the_asymptotes_of_an_exact_curve(
    plain_curve: Plain, bend: float, tolerance: float
) -> None:
    params = theta(300, 40, bend)
    curve = plain_curve(SIZES, np.exp(log_steps(X, params)))
    found, _ = by_knee(regimes(curve, tolerance=tolerance))
    for name, value in truth(params, tolerance).items():
        assert found[name].value == pytest.approx(value, rel=1e-3)
        assert found[name].low == pytest.approx(value, rel=1e-2)
        assert found[name].high == pytest.approx(value, rel=1e-2)


@pytest.mark.parametrize("bend", [0.8, 1.5])
def test_where_the_form_is_true_they_are_covered(
    plain_curve: Plain, bend: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knee_form, "REPLICATES", 200)
    rng, params = np.random.default_rng(4), theta(300, 40, bend)
    exact, count = truth(params, 0.2), 60
    covered = dict.fromkeys(QUANTITIES, 0)
    for _ in range(count):
        steps = np.exp(log_steps(X, params) + rng.normal(0, 0.05, len(X)))
        found, _ = by_knee(regimes(plain_curve(SIZES, steps)))
        for name in QUANTITIES:
            # A knee that is taken for one with a slope of its own says that it has none of these.
            covered[name] += found[name].is_open or found[name].holds(exact[name])
    assert all(0.75 * count <= number for number in covered.values()), covered


def test_where_it_is_not_it_answers_all_the_same_and_says_what_it_assumes(
    plain_curve: Plain,
) -> None:
    """Steps that fall by a power of the batch size, faster at first: neither end is level. Nothing
    is known of the critical batch size, and the knee gives one."""
    steps = 40_000 * np.exp(-0.95 * X + 0.05 * X**2)
    fit = regimes(plain_curve(SIZES, steps))
    assert fit.critical_batch_size.is_open
    found, notes = by_knee(fit)
    assert found["min_steps"].value is not None
    assert "by an assumed form" in notes[0]
    assert any("the fewest steps are extrapolated" in note for note in notes)


def test_a_slope_of_its_own_leaves_no_fewest_examples(plain_curve: Plain) -> None:
    steps = np.exp(log_steps(X, theta(300, 40, 1.5, 0.7)))
    found, notes = by_knee(regimes(plain_curve(SIZES, steps)))
    unknown = {name for name, interval in found.items() if interval.is_open}
    assert unknown == {"perfect_scaling_until", "critical_batch_size", "min_examples"}
    assert found["min_steps"].value == pytest.approx(300, rel=1e-3)
    assert "slope at small batch sizes is -0.70, not -1" in notes[1]


def test_a_form_that_is_none() -> None:
    check_form("knee")
    with pytest.raises(ResultsError, match="there is no form 'kne'") as raised:
        check_form("kne")
    assert "knee" in str(raised.value.hint)
