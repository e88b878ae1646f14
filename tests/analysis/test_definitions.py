"""Critical batch sizes by other authors' definitions: their own numbers, and coverage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from analysis import Curve, regimes
from analysis.fit.convex import Points
from analysis.fit.definitions import beta, named
from results.errors import ResultsError

Plain = Callable[..., Curve]
C4 = [2**i for i in range(6, 15)]
"""Batch sizes of Zhang et al. 2024, in sequences of 512 tokens; ``STEPS`` are those they fitted
(not the ones in their log, which differ in five places), from github.com/hlzhang109 (MIT)."""
STEPS = {
    "85M": [46000, 23000, 13282, 7000, 3840, 2528, 1917, 1600, 1600],
    "151M": [96000, 49000, 24000, 12000, 7128, 4350, 2940, 2400, 2300],
    "604M": [311000, 166000, 81000, 37440, 21320, 11400, 7199, 4700, 3800],
}
THEIRS = {"85M": 745.32, "151M": 955.16, "604M": 1888.52}


@pytest.mark.parametrize("model", THEIRS)
def test_zhang_and_others_own_numbers(plain_curve: Plain, model: str) -> None:
    found = regimes(plain_curve(C4, STEPS[model]), definition="zhang2024").defined
    assert found is not None
    assert found.value == pytest.approx(THEIRS[model], abs=0.01)
    assert found.low < found.value < found.high  # type: ignore[operator]


def test_their_log_gives_other_numbers(plain_curve: Plain) -> None:
    logged = [46000, 23000, 13282, 7000, 3840, 2500, 1800, 1600, 1600]
    found = regimes(plain_curve(C4, logged), definition="zhang2024").defined
    assert found is not None
    assert found.value == pytest.approx(754.25, abs=0.01)


def test_mccandlish_and_others_on_their_own_curve(plain_curve: Plain) -> None:
    sizes = np.array([2.0**i for i in range(12)])
    steps = 100 * (1 + 40 / sizes)
    found = regimes(plain_curve(sizes, steps), definition="mccandlish2018").defined
    assert found is not None
    assert found.value == pytest.approx(40, rel=1e-6)
    product = (steps / 100 - 1) * (sizes * steps / (100 * found.value) - 1)  # type: ignore[operator]
    assert product == pytest.approx(np.ones(12), rel=1e-5)


def test_it_is_a_column_of_the_answer(plain_curve: Plain) -> None:
    answer = regimes(plain_curve(C4, STEPS["85M"]), definition="zhang2024").to_dict()
    assert list(answer)[5:8] == ["min_examples", "critical_batch_size_zhang2024", "slopes"]
    assert answer["critical_batch_size_zhang2024"]["value"] == pytest.approx(745.32, abs=0.01)


def test_what_lies_outside_the_tested_batch_sizes_is_open(plain_curve: Plain) -> None:
    sizes = [2.0**i for i in range(7)]
    found = regimes(plain_curve(sizes, [1000 / b for b in sizes]), definition="mccandlish2018")
    assert found.defined is not None
    assert found.defined.value is found.defined.high is None
    other = regimes(plain_curve(sizes, [1000 / b + 9 for b in sizes]), definition="zhang2024")
    assert other.defined is not None
    assert other.defined.value is None
    assert any("measures from batch size 256" in note for note in other.notes)


def test_what_measures_from_sequences_is_not_of_tokens(plain_curve: Plain) -> None:
    """It measured from 256 tokens: 225,000 instead of 382,000."""
    curve = plain_curve([512 * size for size in C4], STEPS["85M"], example_unit="token")
    with pytest.raises(ResultsError, match="measures from 256 sequences"):
        regimes(curve, definition="zhang2024")
    assert regimes(curve, definition="mccandlish2018").defined is not None


def test_a_bend_that_the_definition_does_not_have_is_said(plain_curve: Plain) -> None:
    sizes = np.array([2.0**i for i in range(12)])
    found = regimes(plain_curve(sizes, 100 * (1 + (40 / sizes) ** 3) ** (1 / 3)),
                    definition="mccandlish2018")  # fmt: skip
    assert any("assumes a knee of bend 1" in note for note in found.notes)


def drawn(seed: int) -> Points:
    x = np.log(2.0) * np.arange(12)
    noise = np.random.default_rng(seed).normal(0, 0.1, 12)
    return Points(x=x, y=np.log(100 * (1 + 300 / np.exp(x))) + noise, variance=np.zeros(12))


@pytest.mark.parametrize("weighted", [False, True])
def test_its_interval_is_that_of_a_fine_grid(weighted: bool) -> None:
    """All log β at which the least sum of squares, over S_min too, is within the limit."""
    points = drawn(1)
    if weighted:
        points = Points(x=points.x, y=points.y, variance=np.linspace(0.002, 0.02, 12))
    at = np.linspace(np.log(30), np.log(3000), 20_001)
    off = points.y - np.logaddexp(0, at[:, None] - points.x)
    weight = points.weights / points.weights.sum()
    away = off - (off @ weight)[:, None]
    squares = np.square(away) @ points.weights
    within = at[squares <= squares.min() * (1 + stats.f.ppf(0.9, 1, 10) / 10)]
    value, low, high = beta(points)
    assert value == pytest.approx(at[squares.argmin()], abs=1e-3)
    assert (low, high) == pytest.approx((within[0], within[-1]), abs=1e-3)


@pytest.mark.slow
def test_its_interval_covers_where_the_bend_is_one() -> None:
    ends = np.array([beta(drawn(seed)) for seed in range(600)])
    covered = ~(ends[:, 1] > np.log(300)) & ~(ends[:, 2] < np.log(300))
    assert 0.87 <= covered.mean() <= 0.93


def test_an_unknown_name(plain_curve: Plain) -> None:
    with pytest.raises(ResultsError, match="no definition 'zhang2025'") as caught:
        named("zhang2025")
    assert caught.value.hint == "did you mean zhang2024?"
    with pytest.raises(ResultsError, match="no definition 'x'") as caught:
        regimes(plain_curve(C4, STEPS["85M"]), definition="x")
    assert caught.value.hint == "known: mccandlish2018, zhang2024"
