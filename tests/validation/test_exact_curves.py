"""Regimes of exact curves: the noisy quadratic model, where the truth is known.

The curves have no noise but that of the grids that they are tuned over (about 2 %), and no knee is
their law.
"""

from __future__ import annotations

import numpy as np
import pytest

from analysis.fit.comparisons import ratio
from analysis.fit.interval import QUANTITIES
from tests.marks import quick
from validation import quadratic
from validation.quadratic import SIZES, estimated, steps, true

EXACT = {"sgd": (423, 2620, 827), "heavy_ball": (19_900, 57_900, 29_400), "ema": (83.6, 317, 121)}
"""Where perfect scaling ends, maximal parallelism begins, and the critical batch size."""


@pytest.mark.parametrize("rule", quick(EXACT, 1))
def test_intervals_hold_the_exact_quantities(rule: str) -> None:
    found = estimated(rule)
    for name, exactly in zip(QUANTITIES, EXACT[rule], strict=False):
        assert true(rule)[name] == pytest.approx(exactly, rel=0.01), name
    for name, value in true(rule).items():
        interval = getattr(found, name)
        assert interval.reached, name
        assert interval.holds(value), name
        assert interval.value == pytest.approx(value, rel=0.1), name
    exact = [size * count for size, count in zip(SIZES, steps(rule), strict=True)]
    assert true(rule)["critical_batch_size"] == pytest.approx(min(exact) / min(steps(rule)), 0.02)
    assert found.notes == ()


def test_the_end_of_perfect_scaling_is_where_the_exact_model_says() -> None:
    """Steps to the goal at that very batch size, not interpolated."""
    from validation import nqm

    (tuned,) = nqm.tune([423], "sgd")
    assert tuned.steps is not None
    least = min(np.multiply(SIZES, steps("sgd")))
    assert 423 * tuned.steps / least == pytest.approx(1.2, rel=0.005)


def test_momentum_extends_perfect_scaling() -> None:
    """41 times fewer steps at the plateau, 1.13 times at small batches."""
    sgd, ball = steps("sgd"), steps("heavy_ball")
    assert sgd[-1] / ball[-1] == pytest.approx(41, rel=0.01)
    assert sgd[0] / ball[0] == pytest.approx(1.13, rel=0.01)
    plain, heavy = estimated("sgd"), estimated("heavy_ball")
    longer = ratio(heavy.critical_batch_size, plain.critical_batch_size)
    assert longer.value == pytest.approx(36, rel=0.02)
    assert longer.low is not None
    assert longer.low > 30


@pytest.mark.slow
def test_an_average_saves_examples_and_no_steps_at_the_plateau() -> None:
    sgd, ema = estimated("sgd"), estimated("ema")
    assert ratio(sgd.min_examples, ema.min_examples).value == pytest.approx(6.5, rel=0.05)
    assert ratio(ema.min_steps, sgd.min_steps).value == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("rule", quick(EXACT, 1))
def test_every_second_batch_size_says_the_same(rule: str) -> None:
    half, whole = estimated(rule, 2), estimated(rule)
    for name in QUANTITIES:
        assert getattr(half, name).holds(true(rule)[name]), name
    assert half.critical_batch_size.value == pytest.approx(whole.critical_batch_size.value, 0.02)


def test_the_page_says_what_is_said_here() -> None:
    """docs/findings/truth.md is not behind."""
    from validation.page import PAGE, blocks

    made = blocks(PAGE.read_text(encoding="utf-8"))
    assert made["exact"] == quadratic.tables()["exact"]
