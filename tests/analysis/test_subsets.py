"""The least of n of N: against counting, and against every subset written out."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.curves.estimators import expected, fewest, least_known, weights

counts = st.integers(1, 60).flatmap(
    lambda trials: st.tuples(st.just(trials), st.integers(1, trials), st.integers(0, trials))
)


@pytest.mark.parametrize(("known", "least"), [(1, 46), (4, 25), (10, 12)])
def test_numbers_of_trials_that_48_show(known: int, least: int) -> None:
    """The design's own: N = 48, with 1, 4 and 10 known."""
    assert fewest(48, known, 0.05) == least
    for n, shown in ((least, True), (least - 1, False)):
        assert (comb(48 - known, n) / comb(48, n) <= 0.05) is shown


def test_nothing_is_shown_where_nothing_is_known() -> None:
    assert fewest(48, 0, 0.05) is None
    assert fewest(1, 1, 0.05) == 1


@given(counts)
def test_weights_are_those_of_counting(case: tuple[int, int, int]) -> None:
    trials, n, known = case
    each, left = weights(trials, n, known)
    counted = [comb(trials - j, n - 1) / comb(trials, n) for j in range(1, known + 1)]
    assert each == pytest.approx(counted, abs=1e-12)
    assert left == pytest.approx(comb(trials - known, n) / comb(trials, n), abs=1e-12)
    assert each.sum() + left == pytest.approx(1.0)


@given(counts, st.sampled_from([0.01, 0.05, 0.35]))
def test_the_fewest_are_found_whatever_is_known(case: tuple[int, int, int], most: float) -> None:
    trials, _, known = case
    counted = [
        n
        for n in range(1, trials + 1)
        if comb(trials - known, n) / comb(trials, n) <= most * (1 + 1e-12)
    ]
    assert fewest(trials, known, most) == (counted[0] if known else None)


@pytest.mark.parametrize("known", [9, 4, 2])
def test_the_expected_best_is_the_mean_of_every_subset_whose_best_is_known(known: int) -> None:
    steps = np.array([40.0, 40, 44, 51, 51, 60, 80, 81, 200])
    for n in range(1, 10):
        bests = [min(some) for some in combinations(range(9), n)]
        kept = [steps[i] for i in bests if i < known]
        if len(kept) < len(bests) / 2:
            continue
        found = expected(steps[:known], 9, np.array([n]))
        assert found[0] == pytest.approx(np.mean(kept))


@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=40).map(sorted))
def test_more_trials_never_expect_a_worse_best(steps: list[float]) -> None:
    found = expected(np.array(steps), len(steps), np.arange(1, len(steps) + 1))
    assert (np.diff(found) <= 1e-9 * found[1:]).all()
    assert found[-1] == pytest.approx(steps[0])
    assert found[0] == pytest.approx(np.mean(steps))


def test_it_is_unbiased() -> None:
    """Of steps that are exponential the best of n takes 1 / n on average."""
    rng = np.random.default_rng(3)
    n = np.array([1, 2, 5, 10, 20])
    draws = np.sort(rng.exponential(size=(4000, 20)), axis=1)
    found = np.mean([expected(row, 20, n) for row in draws], axis=0)
    assert found == pytest.approx(1 / n, rel=0.04)


def test_leaving_out_five_percent_errs_downwards_and_little() -> None:
    rng = np.random.default_rng(4)
    draws = 100 * np.exp(np.sort(rng.exponential(0.5, size=(500, 48)), axis=1))
    n = np.array([25, 32, 48])
    whole = np.mean([expected(row, 48, n) for row in draws], axis=0)
    known = np.mean([expected(row[:4], 48, n) for row in draws], axis=0)
    assert (known <= whole + 1e-9).all()
    assert known == pytest.approx(whole, rel=0.01)
    assert known[-1] == whole[-1]


def test_how_many_must_be_known_for_tens() -> None:
    assert [least_known(trials, 10, 0.35) for trials in (10, 48, 64, 100)] == [1, 5, 6, 10]
    assert least_known(48, 10, 0.05) == 12


def test_what_cannot_be() -> None:
    for wrong in ((5, 6, 2), (5, 0, 2), (5, 2, 6)):
        with pytest.raises(ValueError, match=r"no .* of N = 5"):
            weights(*wrong)
