"""Ratios of two curves' quantities: their intervals by simulation, and the sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import Curve, Interval, compare, regimes
from analysis.fit.comparisons import Pair, against, log_ratio, ratio, ratio_text
from analysis.notes import codes
from results.targets.target import Target
from tests.analysis.test_convex import TEXT
from validation import nqm

Plain = Callable[..., Curve]
SIZES = [2**i for i in range(16)]


def named(plain: Plain, optimizer: str, steps: np.ndarray, **changes: object) -> Curve:
    group = {"workload": "w", "optimizer": optimizer, **changes.pop("group", {})}  # type: ignore[dict-item]
    return plain(SIZES, steps, **{"group": group, "label": optimizer, **changes})


def knee(min_steps: float, critical: float, noise: float = 0.05, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return min_steps * (1 + critical / np.array(SIZES)) * np.exp(rng.normal(0, noise, len(SIZES)))


@pytest.mark.slow
def test_the_interval_of_a_ratio_covers(plain_curve: Plain) -> None:
    """Two curves of unequal knees and noise, 50 pairs; the truth is that of the tested range."""
    true = {"critical_batch_size": 161 / 41, "min_steps": 1 / 3}
    last = SIZES[-1]
    true["critical_batch_size"] *= (1 + 40 / last) / (1 + 160 / last)
    true["min_steps"] *= (1 + 160 / last) / (1 + 40 / last)
    held: dict[str, list[bool]] = {name: [] for name in true}
    for seed in range(50):
        curves = [
            named(plain_curve, "sgd", knee(3000, 40, 0.03, seed=1000 + seed)),
            named(plain_curve, "other", knee(1000, 160, 0.1, seed=seed)),
        ]
        _, found = compare(curves, [regimes(curve) for curve in curves], "sgd")
        assert found is not None
        for name, value in true.items():
            held[name].append(found.ratios[name].holds(value))
    assert min(np.mean(each) for each in held.values()) >= 0.84


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
    """The exact noisy quadratic model: critical batch sizes 35 apart, 40 times fewer steps."""
    sizes = [2**i for i in range(2, 21, 2)]
    steps = {
        name: np.array([each.steps for each in nqm.tune(sizes, rule)])
        for rule, name in (("sgd", "sgd"), ("heavy_ball", "momentum"))
    }
    curves = [
        plain_curve(sizes, each, group={"optimizer": name}, label=name)
        for name, each in steps.items()
    ]
    none, found = compare(curves, [regimes(curve) for curve in curves], "sgd")
    assert none is None
    assert found is not None
    critical = {
        name: float((np.array(sizes) * each).min() / each.min()) for name, each in steps.items()
    }
    true = critical["momentum"] / critical["sgd"]
    assert found.ratios["critical_batch_size"].value == pytest.approx(true, rel=0.03)
    fewer = steps["sgd"].min() / steps["momentum"].min()
    assert 1 / found.ratios["min_steps"].value == pytest.approx(fewer, rel=0.01)  # type: ignore[operator]
    assert 35 < true < 41
    assert " the critical batch size of momentum is 3" in f" {found.sentence}"


def test_what_the_sentence_says(plain_curve: Plain) -> None:
    curves = [
        named(plain_curve, "sgd", knee(1000, 160, 0.02)),
        named(plain_curve, "same", knee(1000, 160, 0.02, seed=1)),
        named(plain_curve, "less", knee(3000, 40, 0.02, seed=2)),
        named(plain_curve, "line", 1e5 / np.array(SIZES)),
        named(plain_curve, "short", knee(1000, 160)),
    ]
    found = [regimes(curve) for curve in curves[:-1]]
    _, same, less, line, short = compare(curves, [*found, None], "sgd")
    assert same is not None
    assert less is not None
    assert line is not None
    assert short is None
    assert same.level_ends
    assert same.sentence.startswith(
        "the critical batch sizes of same and sgd cannot be distinguished: their ratio is "
    )
    assert "; steps at the plateau cannot be distinguished: their ratio is " in same.sentence
    assert less.sentence.startswith("the critical batch size of less is 0.")
    assert " times that of sgd; at the plateau less takes " in less.sentence
    assert less.sentence.endswith("times the steps")
    given = less.to_dict()
    assert list(given) == ["baseline", "ratios", "steps", "within", "level_ends", "sentence"]
    assert set(given["ratios"]["min_steps"]) == {"value", "low", "high"}
    assert given["within"] == [1, 32768]
    assert [row["batch_size"] for row in given["steps"]] == SIZES
    assert set(given["steps"][0]) == {"batch_size", "value", "low", "high"}
    # A line has no plateau: what is compared is the tested range, and the steps at its ends.
    assert not line.level_ends
    assert line.sentence.startswith(
        "over batch sizes 1 to 32,768, the ratio of the fewest examples to the fewest steps of "
    )
    assert re.search(
        r"; line takes 0\.6\d \[.*\] times the steps of sgd at batch size 1 and 0\.00\d+ \[.*\] "
        "times at 32,768$",
        line.sentence,
    )


def at(curve: Curve, first: int, last: int) -> Curve:
    """Its points from one place to another."""
    return replace(curve, points=curve.points[first:last])


def test_curves_of_equal_ranges_are_compared_as_they_are(plain_curve: Plain) -> None:
    curves = [named(plain_curve, name, knee(1000, 160, seed=i)) for i, name in enumerate("ab")]
    first, second = (regimes(curve) for curve in curves)
    pair = Pair.of(first, second)
    assert pair.fits == (first.located, second.located)
    assert pair.within == (1, 32768)
    # Batch sizes between those of the other are within its range.
    thinned = regimes(replace(curves[1], points=curves[1].points[::3]))
    assert Pair.of(first, thinned).within == (1, 32768)
    assert list(Pair.of(first, thinned).steps(0.9)) == SIZES[::3]


def test_curves_are_compared_over_the_range_that_both_have(plain_curve: Plain) -> None:
    """A curve that was tested to larger batch sizes has fewer least steps, for that alone."""
    both = [named(plain_curve, name, knee(1000, 1e4, 0.01, seed=i)) for i, name in enumerate("ab")]
    long, short = regimes(at(both[0], 2, 16)), regimes(at(both[1], 0, 12))
    pair = Pair.of(long, short)
    assert pair.within == (4, 2048)
    assert pair.fits is not None
    assert [len(each.points.x) for each in pair.fits] == [10, 10]
    found = against(both[0], both[1], long, short)
    assert found.within == (4, 2048)
    assert found.ratios["min_steps"].value == pytest.approx(1, abs=0.05)
    assert found.ratios["min_steps"].holds(1.0)
    assert list(found.steps) == SIZES[2:12]
    assert found.sentence.startswith("over batch sizes 4 to 2,048, ")
    assert not found.level_ends


@pytest.mark.parametrize("step", [2, 1])
def test_batch_sizes_of_two_grids_are_compared_between_the_same_ends(
    plain_curve: Plain, step: int
) -> None:
    """One curve, tested at 1, 4, 16 … and at 2, 8, 32 …, or at 1, 4, 16 … twice: ratios are 1."""
    held = []
    for seed in range(20):
        both = [
            named(plain_curve, n, knee(1000, 1e5, 0.03, 2 * seed + i)) for i, n in enumerate("ab")
        ]
        curves = [replace(c, points=c.points[i * (step - 1) :: 2]) for i, c in enumerate(both)]
        _, found = compare(curves, [regimes(curve) for curve in curves], "a")
        assert found is not None
        assert found.within == ((2, 16384) if step == 2 else (1, 16384))
        assert (found.steps == {}) == (step == 2)
        assert ("times the steps" in found.sentence) == (step == 1)
        held += [found.ratios[name].holds(1) for name in ("min_steps", "critical_batch_size")]
    assert np.mean(held) >= 0.85


def test_curves_that_share_too_few_are_compared_as_each_is(plain_curve: Plain) -> None:
    both = [named(plain_curve, name, knee(1000, 160, 0.01, seed=i)) for i, name in enumerate("ab")]
    first, second = regimes(at(both[0], 0, 8)), regimes(at(both[1], 6, 16))
    found = against(both[0], both[1], first, second)
    assert found.within is None
    assert found.steps == {}
    assert not found.level_ends
    assert found.to_dict()["within"] is None
    assert not found.sentence.startswith("over")
    expected = ratio(first.min_steps, second.min_steps)
    assert found.ratios["min_steps"] == expected


def test_muon_takes_a_third_of_the_steps_wherever_the_batch_is_not_tiny(plain_curve: Plain) -> None:
    """techniques-text: the ratio of steps at each batch size, which no form can move."""
    sizes = [2**i for i in range(8)]
    curves = [
        plain_curve(sizes, TEXT[name], group={"optimizer": name}, label=name) for name in TEXT
    ]
    _, found = compare(curves, [regimes(curve) for curve in curves], "adamw")
    assert found is not None
    assert list(found.steps) == sizes
    for size, ours, theirs in zip(sizes, TEXT["muon"], TEXT["adamw"], strict=True):
        assert found.steps[size].value == pytest.approx(ours / theirs, rel=0.1)
    assert found.steps[1].value == pytest.approx(0.54, abs=0.005)
    for size in sizes[3:]:
        assert 0.26 < found.steps[size].value < 0.37  # type: ignore[operator]
        assert found.steps[size].high < 0.45  # type: ignore[operator]
    assert found.ratios["min_steps"].holds(20 / 61)
    assert not found.level_ends
    assert "muon takes 0.54 [" in found.sentence
    assert "times at 128" in found.sentence


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
    assert codes(found.notes) == ["unlike", "unequal_dimensions", "unequal_trials"]
    assert found.notes[0] == "not like for like: momentum and sgd differ in optimizer, target"
    pairs = [(note.values["n"], note.values["of_base"]) for note in found.notes[1:]]
    assert pairs == [(2, 1), (32, 64)]


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
