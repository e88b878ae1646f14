"""The local critical batch size by branches: comparisons, coverage, and the ramp proposed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from analysis.branches.critical import Branches, Losses, branches
from analysis.fit.interval import Interval
from results.errors import ResultsError

TIMES = (1, 2, 4, 8, 16)
TOLERANCE = 0.01


def one(by_times: Mapping[int, Any], **more: Any) -> Branches:
    return branches([Losses(step=100, window=64, by_times=by_times)], 16, **more)


def drawn(law: Callable[[int], float], noise: float, seeds: int, rng: np.random.Generator,
          draw: str = "normal") -> Branches:  # fmt: skip
    """Branches whose log losses scatter by ``noise`` about ``law``'s, the mean log excess of k."""
    scatter = rng.standard_normal if draw == "normal" else lambda n: rng.standard_t(3, n) / 3**0.5
    return one({k: 2.5 * np.exp(law(k) + noise * scatter(seeds)) for k in TIMES})


def test_excesses_are_by_welchs_interval() -> None:
    rng = np.random.default_rng(0)
    losses = {1: 2 + 0.01 * rng.random(3), 4: 2.02 + 0.05 * rng.random(4)}
    (comparison,) = one(losses).points[0].comparisons
    test = stats.ttest_ind(np.log(losses[4]), np.log(losses[1]), equal_var=False)
    ends = test.confidence_interval(0.9)
    assert comparison.excess.low == pytest.approx(math.expm1(ends.low))
    assert comparison.excess.high == pytest.approx(math.expm1(ends.high))
    mean = np.log(losses[4]).mean() - np.log(losses[1]).mean()
    assert comparison.excess.value == pytest.approx(math.expm1(mean))


def test_the_estimate_is_linear_in_the_log_of_k() -> None:
    made = one({k: [2.0 * 1.01**x] * 2 for k, x in ((1, 0), (2, 0.1), (4, 0.5), (8, 1.5))})
    assert made.points[0].critical.ends == (pytest.approx(4 * 2**0.5 * 16), 64, 128)
    assert [c.verdict for c in made.points[0].comparisons] == ["within", "within", "above"]


@pytest.mark.parametrize("critical", [1.5, 3.0, 5.0, 11.0, 40.0])
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_hold_the_truth_of_a_law(critical: float, seeds: int) -> None:
    """The excess is linear in k - 1, as where the noise scale rules; two noises of the loss."""
    rng = np.random.default_rng(1)
    slope = math.log1p(TOLERANCE) / (critical - 1)
    for noise in (0.001, 0.005):
        made = [drawn(lambda k: slope * (k - 1), noise, seeds, rng) for _ in range(200)]
        held = [each.points[0].critical.holds(critical * 16) for each in made]
        assert np.mean(held) >= 0.9
        estimates = [each.points[0].critical.value for each in made]
        known = [math.log(value / 16 / critical) for value in estimates if value]
        if critical < 16 and noise == 0.001:
            assert abs(np.median(known)) < 0.15  # linear between doublings, of a line in k


@pytest.mark.parametrize("critical", [1.5, 3.0])
def test_an_excess_that_rises_slowly_is_seldom_said_to_be_within(critical: float) -> None:
    """Each larger k is hardly worse: of several beyond the truth, one is within by chance."""
    rng, tolerance = np.random.default_rng(1), math.log1p(TOLERANCE)

    def law(k: int) -> float:
        return 0.0 if k == 1 else tolerance * (1 + 0.02 * math.log2(k / critical))

    made = [drawn(law, 0.003, 4, rng).points[0].critical for _ in range(600)]
    assert np.mean([(each.low or 0) > critical * 16 for each in made]) <= 0.06
    assert np.mean([(each.high or math.inf) < critical * 16 for each in made]) <= 0.06
    assert np.mean([each.holds(critical * 16) for each in made]) >= 0.93


@pytest.mark.parametrize("draw", ["normal", "student"])
def test_a_law_of_another_family(draw: str) -> None:
    """Larger batches are better first, as with a rate that was too low, and noise has long tails:
    the truth is where the excess passes the tolerance for the last time."""
    rng = np.random.default_rng(2)

    def law(k: int) -> float:
        x = math.log2(k)
        return 0.012 * x * (x - 2)

    truth = 2 ** (1 + math.sqrt(1 + math.log1p(TOLERANCE) / 0.012))
    made = [drawn(law, 0.004, 3, rng, draw).points[0].critical for _ in range(400)]
    assert np.mean([each.holds(truth * 16) for each in made]) >= 0.9
    assert np.mean([each.reached for each in made]) > 0.6


def test_a_noisy_quadratic_whose_loss_is_known() -> None:
    """Zhang et al. 2019: SGD on a quadratic, whose expected loss follows exactly. The branches are
    trained, from one state; their rate grows by sqrt, so that the excess is that of slower progress
    and nearly linear in log k."""
    curvature, steps, tolerance = 1 / np.arange(1, 41), 256, 0.12
    rng, start = np.random.default_rng(3), np.ones(40)

    def expected(k: int) -> float:
        rate, square = 0.04 * k**0.5, start**2
        for _ in range(steps // k):
            square = (1 - rate * curvature) ** 2 * square + rate**2 * curvature / k
        return float((curvature * square).sum() / 2) + 1

    def trained(k: int) -> float:
        rate, weights = 0.04 * k**0.5, start.copy()
        for _ in range(steps // k):
            noise = np.sqrt(curvature / k) * rng.standard_normal(40)
            weights -= rate * (curvature * weights + noise)
        return float((curvature * weights**2).sum() / 2) + 1

    excess = [math.log(expected(k) / expected(1)) for k in TIMES]
    truth = float(np.interp(math.log1p(tolerance), excess, np.log2(TIMES)))
    assert 1 < truth < 2
    made = [
        one({k: [trained(k) for _ in range(3)] for k in TIMES}, tolerance=tolerance)
        .points[0]
        .critical
        for _ in range(60)
    ]
    assert np.mean([each.holds(16 * 2**truth) for each in made]) >= 0.9
    assert np.mean([each.reached for each in made]) > 0.5


def by_examples(cost: float, noise: float, seeds: int, rng: np.random.Generator) -> Branches:
    """The loss falls as t^-0.3 of the examples t; k needs 1 + ``cost`` (k - 1) times as many."""
    losses = [
        Losses(
            step=1000,
            window=window,
            by_times={
                k: ((1000 + window) / (1 + cost * (k - 1))) ** -0.3
                * np.exp(noise * rng.standard_normal(seeds))
                for k in TIMES
            },
        )
        for window in (250, 500, 750, 1000)
    ]  # fmt: skip
    return branches(losses, 16, tolerance=0.05, of_examples=True)


def test_a_tolerance_in_examples_is_that_of_the_loss_which_they_take_off() -> None:
    made = by_examples(0.02, 1e-9, 3, np.random.default_rng(0))
    for point in made.points:
        assert point.tolerance == pytest.approx(1.05**0.3 - 1, rel=1e-4)
        assert point.critical.ends[1:] == (32, 64)  # 1 + 0.05 / 0.02 = 3.5 times
    assert made.to_dict()["tolerance_of"] == "examples"


@pytest.mark.parametrize("noise", [0.0005, 0.003])
@pytest.mark.parametrize("cost", [0.004, 0.02, 0.04])
def test_intervals_in_examples_hold_the_truth(cost: float, noise: float) -> None:
    rng, truth = np.random.default_rng(5), 16 * (1 + 0.05 / cost)
    made = [by_examples(cost, noise, 4, rng).points[-1].critical for _ in range(200)]
    assert np.mean([each.holds(truth) for each in made]) >= 0.88


def test_where_the_loss_does_not_fall_nothing_is_told_in_examples() -> None:
    losses = [
        Losses(step=100, window=window, by_times=dict.fromkeys(TIMES, flat))
        for window, flat in ((32, [2.0, 2.001, 1.999]), (64, [2.002, 2.001, 2.003]))
    ]
    made = branches(losses, 16, of_examples=True)
    assert [point.critical for point in made.points] == [Interval()] * 2
    assert made.points[0].tolerance is None
    assert made.to_dict()["note_codes"] == ["branch_no_slope"]
    assert made.ramp() == []


def test_what_is_not_known_stays_open() -> None:
    alone = one({1: [2.0], 2: [2.5]})
    assert alone.points[0].critical == Interval(value=16 * 2 ** (math.log(1.01) / math.log(1.25)))
    assert alone.to_dict()["note_codes"] == ["branch_one_seed"]
    within = one({1: [2.0, 2.0], 2: [2.0, 2.0], 4: [2.0, 2.0]})
    assert within.points[0].critical == Interval(low=64)
    wild = one({1: [2.0, 2.0], 2: [2.0, 2.0], 4: [2.0, math.inf]})
    assert wild.points[0].critical == Interval(low=32, high=64)
    assert wild.notes == ("branches diverged at batch size 64: counted as above",)
    lost = one({1: [2.0, math.inf], 2: [2.0, 2.0]})
    assert lost.points[0].critical == Interval()
    assert lost.to_dict()["note_codes"] == ["branch_base_diverged"]
    odd = one({1: [2.0, 2.0], 2: [2.1, 2.1], 4: [2.0, 2.0]})
    assert odd.points[0].critical.ends[1:] == (None, None)
    assert odd.to_dict()["note_codes"] == ["branch_not_monotone"]


def at(step: int, window: int, within: int) -> Losses:
    by_times = {k: [2.0 if k <= within else 2.5] * 2 for k in (1, 2, 3, 4, 8)}
    return Losses(step=step, window=window, by_times=by_times)


def test_the_ramp_grows_where_every_later_step_allows_it() -> None:
    """By powers of two, and by the longest window alone."""
    lows = [(100, 1), (200, 3), (300, 8), (400, 4), (500, 8)]
    losses = [at(step, window, low if window == 64 else 8)
              for step, low in lows for window in (32, 64)]  # fmt: skip
    made = branches(losses, 16)
    assert made.ramp() == [(200, 2), (300, 4), (500, 8)]
    assert [point.window for point in made.last] == [64] * 5
    assert branches([at(100, 64, 1)], 16).ramp() == []


def test_no_size_is_proposed_that_is_not_surely_within() -> None:
    """That 4 is within says nothing of 2, which is open; nor does 3 of 2, which was not tested."""
    wide = one({1: [2.0, 2.0], 2: [1.9, 2.1], 4: [2.0, 2.0]})
    assert [each.verdict for each in wide.points[0].comparisons] == ["open", "within"]
    assert wide.points[0].critical.low is None
    assert wide.ramp() == []
    odd = one({1: [2.0, 2.0], 3: [2.0, 2.0], 4: [2.0, 2.0], 6: [2.0, 2.0], 8: [2.5, 2.5]})
    assert odd.points[0].critical.low == 96
    assert odd.ramp() == [(100, 4)]
    assert one({1: [2.0, 2.0], 3: [2.0, 2.0]}).ramp() == []


@pytest.mark.parametrize(
    ("losses", "tolerance", "message"),
    [
        ({1: [0.0, 0.1], 2: [0.1, 0.1]}, 0.01, "a loss after step 100 is not above 0"),
        ({1: [math.nan, 0.1], 2: [0.1, 0.1]}, 0.01, "a loss after step 100 is not above 0"),
        ({1: [0.1, 0.1], 2: [0.1, 0.1]}, 0.0, "tolerance 0 is not above 0"),
    ],
)
def test_what_has_no_ratio_is_refused(
    losses: dict[int, Sequence[float]], tolerance: float, message: str
) -> None:
    with pytest.raises(ResultsError, match=message):
        one(losses, tolerance=tolerance)
