"""Ratios of two curves' quantities: their intervals by simulation, and the sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import Curve, Interval, compare, regimes
from analysis.fit.comparisons import log_ratio, ratio, ratio_text
from results.targets.target import Target
from validation import nqm
from validation.simulate import Cell, doubling, simulate, true_value

Plain = Callable[..., Curve]
SIZES = [2.0**i for i in range(12)]


def named(plain: Plain, optimizer: str, steps: np.ndarray, **changes: object) -> Curve:
    group = {"workload": "w", "optimizer": optimizer, **changes.pop("group", {})}  # type: ignore[dict-item]
    return plain(SIZES, steps, **{"group": group, "label": optimizer, **changes})


def knee(min_steps: float, critical: float, noise: float = 0.05, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return min_steps * (1 + critical / np.array(SIZES)) * np.exp(rng.normal(0, noise, 12))


@pytest.mark.slow
def test_the_interval_of_a_ratio_covers() -> None:
    """Two curves of unequal knees and noise, 160 pairs."""
    one = Cell(batch_sizes=doubling(12), critical=140.0, bend=1.0, noise=0.10)
    other = Cell(batch_sizes=doubling(12), critical=40.0, bend=1.5, noise=0.03, min_steps=3000.0)
    first, second = simulate(one, 160, 1), simulate(other, 160, 2)
    for name in ("critical_batch_size", "min_steps"):
        _, low, high = log_ratio(
            (first.value[name], first.low[name], first.high[name]),
            (second.value[name], second.low[name], second.high[name]),
        )
        true = true_value(one, name, 0.2) - true_value(other, name, 0.2)
        assert 0.84 <= np.mean(~(low > true) & ~(high < true)) <= 0.95
        assert np.median(high - low) < np.log(2.5)


ENDS = st.tuples(st.floats(-3, 3), st.floats(0.01, 2), st.floats(0.01, 2)).map(
    lambda drawn: tuple(np.array(x) for x in (drawn[0], drawn[0] - drawn[1], drawn[0] + drawn[2]))
)


@given(one=ENDS, other=ENDS)
def test_laws_of_a_ratio(one, other) -> None:
    value, low, high = log_ratio(one, other)
    assert low < value < high
    turned = log_ratio(other, one)
    assert np.allclose([turned[0], turned[1], turned[2]], [-value, -high, -low])
    # Wider than either curve's own, narrower than both together.
    assert high - low >= max(one[2] - one[1], other[2] - other[1]) - 1e-9
    assert high - low <= (one[2] - one[1]) + (other[2] - other[1]) + 1e-9
    exact = (other[0], other[0], other[0])
    assert np.allclose(log_ratio(one, exact), [x - other[0] for x in one])


@given(one=ENDS, other=ENDS)
def test_a_ratio_is_the_profile_of_two_half_parabolas(one, other) -> None:
    """At either end the summed profiles, minimized over the baseline's quantity, are one above."""

    def cost(at: np.ndarray, ends) -> np.ndarray:
        value, low, high = ends
        return np.square((at - value) / np.where(at < value, value - low, high - value))

    for end in log_ratio(one, other)[1:]:
        q = np.linspace(other[1], other[2], 20_001)
        assert (cost(q + end, one) + cost(q, other)).min() == pytest.approx(1.0, abs=1e-3)


def test_open_ends_stay_open() -> None:
    known = Interval(value=10.0, low=8.0, high=13.0)
    bounded = Interval(value=None, low=40.0, high=None)
    low: Any = pytest.approx(40 / 13)
    assert ratio(bounded, known) == Interval(value=None, low=low, high=None)
    high: Any = pytest.approx(13 / 40)
    assert ratio(known, bounded) == Interval(value=None, low=None, high=high)
    wide = Interval(value=None, low=2.0, high=50.0)
    both = ratio(wide, known)
    assert (both.low, both.high) == pytest.approx((2 / 13, 50 / 8))
    half = ratio(Interval(value=10.0, low=8.0, high=None), known)
    assert half.low is not None
    assert half.high is None


@pytest.mark.slow
def test_momentum_extends_perfect_scaling(plain_curve: Plain) -> None:
    """The exact noisy quadratic model: critical batch sizes 36 apart, 41 times fewer steps."""
    sizes = [2**i for i in range(2, 21, 2)]
    curves = [
        plain_curve(
            sizes, [t.steps for t in nqm.tune(sizes, rule)], group={"optimizer": name}, label=name
        )
        for rule, name in (("sgd", "sgd"), ("heavy_ball", "momentum"))
    ]
    none, found = compare(curves, [regimes(curve) for curve in curves], "sgd")
    assert none is None
    assert found is not None
    assert found.ratios["critical_batch_size"].value == pytest.approx(35.2, rel=0.01)
    assert 1 / found.ratios["min_steps"].value == pytest.approx(40.1, rel=0.01)  # type: ignore[operator]
    assert found.sentence == (
        "the critical batch size of momentum is 35 [34, 37] times that of sgd; "
        "at the plateau momentum takes 40 [39, 42] times fewer steps"
    )


def test_what_the_sentence_says(plain_curve: Plain) -> None:
    curves = [
        named(plain_curve, "sgd", knee(1000, 40)),
        named(plain_curve, "same", knee(1000, 40, seed=1)),
        named(plain_curve, "less", knee(3000, 10, seed=2)),
        named(plain_curve, "line", 1e5 / np.array(SIZES)),
        named(plain_curve, "short", knee(1000, 40)),
    ]
    found = [regimes(curve) for curve in curves[:-1]]
    _, same, less, line, short = compare(curves, [*found, None], "sgd")
    assert same is not None
    assert less is not None
    assert line is not None
    assert short is None
    assert same.sentence.startswith(
        "the critical batch sizes of same and sgd cannot be distinguished: their ratio is "
    )
    assert "; steps at the plateau cannot be distinguished: their ratio is " in same.sentence
    assert less.sentence.startswith("the critical batch size of less is 0.")
    assert " times that of sgd; at the plateau less takes " in less.sentence
    assert less.sentence.endswith("times the steps")
    assert line.sentence.startswith("the critical batch size of line is ≥ ")
    assert " times that of sgd; " in line.sentence
    given = less.to_dict()
    assert set(given) == {"baseline", "ratios", "sentence"}
    assert set(given["ratios"]["min_steps"]) == {"value", "low", "high"}


def test_each_curve_has_the_baseline_that_is_most_like_it(plain_curve: Plain) -> None:
    curves = [
        named(plain_curve, name, knee(1000, at), group={"width": width}, label=f"{name} {width}")
        for name, at in (("sgd", 40), ("momentum", 100))
        for width in (64, 256)
    ]
    found = [regimes(curve) for curve in curves]
    assert [one and one.baseline for one in compare(curves, found, "sgd")] == [
        None, None, "sgd 64", "sgd 256",
    ]  # fmt: skip
    assert [one and one.baseline for one in compare(curves, found, "64")] == [
        None, "sgd 64", None, "momentum 64",
    ]  # fmt: skip
    stray = named(plain_curve, "adam", knee(1000, 40), group={"width": 1024}, label="adam")
    *_, none = compare([*curves, stray], [*found, regimes(stray)], "sgd")
    assert none is not None
    assert none.sentence == "the baseline of adam is not clear"
    assert none.notes == ("several curves could be the baseline of adam: sgd 64; sgd 256",)


def test_what_is_not_alike_is_said(plain_curve: Plain) -> None:
    target = Target.parse("validation_error < 0.1")
    curves = [
        named(plain_curve, "sgd", knee(1000, 40), dimensions=1, trials=64),
        named(plain_curve, "momentum", knee(500, 90), dimensions=2, trials=32, target=target),
    ]
    _, found = compare(curves, [regimes(curve) for curve in curves], "sgd")
    assert found is not None
    first, second, third = found.notes
    assert first == "not like for like: momentum and sgd differ in optimizer, target"
    assert second.startswith("2 metaparameters were tuned for momentum and 1 for sgd")
    assert third.startswith("points are the best of 32 for momentum and of 64 for sgd")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((3.14, 2.4, 4.04), "3.1 [2.4, 4.0]"),
        ((35.2, 33.1, 37.0), "35 [33, 37]"),
        ((0.123, 0.1, 0.15), "0.12 [0.1, 0.15]"),
        ((None, 2.4, None), "≥ 2.4"),
        ((None, None, 1234.0), "≤ 1,200"),
        ((None, 2.4, 9.0), "[2.4, 9.0]"),
    ],
)
def test_words(found, said: str) -> None:
    value, low, high = found
    assert ratio_text(Interval(value=value, low=low, high=high)) == said
