"""The limit of a search: exact where the tail is, withheld where nothing follows, and its note."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import gamma

import numpy as np
import pandas as pd
import pytest

from analysis import Curve, Interval, Point, curves, regimes
from analysis.fit.search_limits import SearchEffect, _Tail, _tail, search_effect, search_trend
from analysis.report.findings import warnings
from analysis.report.panels import View
from results.batch_phases import BatchPhases

Make = Callable[..., pd.DataFrame]
SIZES = tuple(2**i for i in range(12))
DIMENSIONS = (1, 2, 3, 4)


def least(
    rng: np.random.Generator, dimensions: int, height: float = 1.0, *, power: float = 2.0
) -> list[float]:
    """The steps of the four best of 256 random trials about an optimum of 100 steps."""
    far = np.abs(rng.uniform(-1, 1, (256, dimensions)))
    excess = height * np.square(far).sum(1) ** (power / 2)
    return (100 * np.exp(np.sort(excess)[:4])).tolist()


@cache
def mean_excess(dimensions: int, power: float) -> float:
    rng = np.random.default_rng(9)
    steps = [least(rng, dimensions, power=power)[0] for _ in range(2000)]
    return float(np.mean(np.log(steps)) - np.log(100))


def drawn(rng: np.random.Generator, dimensions: int, slope: float, *, power: float = 2.0) -> Curve:
    """A curve whose excess has a mean that is linear in log B: 0.1 at its smallest batch size."""
    usual, made = mean_excess(dimensions, power), []
    for size in SIZES:
        height = (0.1 + slope * np.log(size)) / usual
        steps = tuple(
            (1 + 45 / size) * each for each in least(rng, dimensions, height, power=power)
        )
        made.append(Point(batch_size=size, steps=steps[0], minimum=steps[0], trials=256,
                          order_statistics=steps, middles=steps[:1]))  # fmt: skip
    return Curve(group={"optimizer": "sgd"}, label="sgd", target=None, points=tuple(made),
                 trials=256, dimensions=dimensions, scaled_dimensions=dimensions)  # fmt: skip


def limit(steps: list[float], trials: int, dimensions: int | None) -> Interval | None:
    tail = _tail(steps, trials, dimensions)
    return None if tail is None else tail.limit


@pytest.mark.parametrize("dimensions", DIMENSIONS)
def test_the_limit_of_one_search_is_unbiased_and_its_interval_exact(dimensions: int) -> None:
    rng = np.random.default_rng(dimensions)
    covered, true, found = 0, [], []
    for _ in range(1000):
        steps = least(rng, dimensions)
        answer = limit(steps, 256, dimensions)
        assert answer is not None
        assert answer.value is not None
        covered += answer.holds(100 / steps[0])
        true.append(np.log(steps[0] / 100))
        found.append(-np.log(answer.value))
    assert covered / 1000 == pytest.approx(0.9, abs=0.025)
    assert np.mean(found) == pytest.approx(np.mean(true), rel=0.1)


def test_no_limit_follows_from_too_little() -> None:
    steps = [100.0, 104.0, 106.0, 109.0]
    assert limit(steps, 64, 2) is not None
    assert limit(steps, 64, 0) is None
    assert limit(steps, 64, None) is None
    assert limit(steps, 7, 2) is None
    assert limit(steps[:1], 64, 2) is None
    assert limit([0.0, *steps], 64, 2) is None
    # Of the trials at most an eighth count, but four where they are a quarter at most.
    assert limit(steps, 64, 2) == limit([*steps[:3], 109.0], 64, 2) != limit(steps[:3], 64, 2)
    assert limit([*steps, 300.0], 39, 2) == limit(steps, 39, 2)
    assert limit([*steps, 300.0], 40, 2) != limit(steps, 40, 2)
    assert limit(steps, 12, 2) == limit(steps[:3], 12, 2)


@pytest.mark.parametrize("dimensions", DIMENSIONS)
@pytest.mark.parametrize("used", [2, 4, 8])
def test_the_deviation_of_an_excess_is_that_of_its_distribution(dimensions: int, used: int) -> None:
    rng = np.random.default_rng([dimensions, used])
    sums = np.cumsum(rng.exponential(size=(100_000, used)), axis=1) ** (2 / dimensions)
    gaps = sums[:, -1] - sums[:, 0]
    tail = _Tail(gap=1.0, used=used, dimensions=dimensions)
    assert tail.deviation == pytest.approx(gaps.std() / gaps.mean(), rel=0.03)


@pytest.mark.parametrize("dimensions", DIMENSIONS)
@pytest.mark.parametrize("slope", [0.0, 0.05])
def test_the_trend_covers(dimensions: int, slope: float) -> None:
    rng = np.random.default_rng([dimensions, round(100 * slope)])
    true = np.exp(slope * np.log(SIZES[-1] / SIZES[0]))
    trends = [search_trend(drawn(rng, dimensions, slope)) for _ in range(150)]
    factors = [each.effect(SIZES[0], SIZES[-1]).factor for each in trends if each is not None]
    assert len(factors) == 150
    assert 0.8 <= np.mean([factor.holds(true) for factor in factors]) <= 0.98
    middle = np.median([np.log(factor.value or np.nan) for factor in factors])
    assert middle == pytest.approx(np.log(true), abs=0.05)


@pytest.mark.parametrize("power", [1.0, 4.0])
def test_of_other_powers_than_two_the_excess_is_wrong_by_a_known_factor(power: float) -> None:
    """Outside the family: the sign of the trend is right, its size is not."""

    def share(p: float) -> float:
        """Mean excess of X(1) over the mean gap to X(4)."""
        return gamma(1 + p) / (gamma(4 + p) / 6 - gamma(1 + p))

    rng = np.random.default_rng(5)
    trends = [search_trend(drawn(rng, 3, 0.05, power=power)) for _ in range(100)]
    factors = [each.effect(SIZES[0], SIZES[-1]).factor for each in trends if each is not None]
    assert len(factors) == 100
    found = np.log([factor.value or np.nan for factor in factors])
    ratio = np.median(found) / (0.05 * np.log(SIZES[-1]))
    assert ratio == pytest.approx(share(2 / 3) / share(power / 3), rel=0.2)


def test_ties_leave_nothing_to_correct() -> None:
    curve = drawn(np.random.default_rng(0), 2, 0.05)
    tied = [replace(p, order_statistics=p.order_statistics[:1] * 4) for p in curve.points]
    trend = search_trend(replace(curve, points=tuple(tied)))
    assert trend is not None
    assert trend.effect(1, 2048).factor == Interval(value=1.0, low=1.0, high=1.0)


def test_it_uses_nothing_beyond_what_dominated_stopping_keeps(
    search: Make, studies_of: Make
) -> None:
    kept, whole = search(n=24), search(n=24, keep=None)
    studies = studies_of(kept)
    trends = [search_trend(*curves(each, studies=studies)) for each in (kept, whole)]
    assert trends[0] is not None
    assert trends[0] == trends[1]


def test_it_is_withheld_where_the_least_is_not_of_a_random_search(
    search: Make, studies_of: Make
) -> None:
    trials = search(n=24)
    studies = studies_of(trials)
    (known,) = curves(trials, studies=studies)
    assert search_trend(known) is not None
    (unknown,) = curves(trials)
    (chosen,) = curves(trials.assign(search="points"), studies=studies)
    (tens,) = curves(search(n=24, keep=None), studies=studies, estimator="best_of_10")
    both = pd.concat([trials, search("adam", n=24, seed=1)])
    (merged,) = curves(both, by=["schedule"], studies=studies_of(both))
    (runs,) = curves(trials.assign(role="repeat", status="COMPLETE"), studies=studies)
    few = replace(known, points=known.points[:2])
    for curve in (unknown, chosen, tens, merged, runs, few):
        assert search_trend(curve) is None
    assert search_trend(replace(known, points=known.points[:3])) is not None
    assert search_effect(known, None) is None


def test_choices_and_fixed_values_are_no_dimensions(search: Make, studies_of: Make) -> None:
    trials = search(n=24)
    space = '{"learning_rate": {"log": [0.001, 10]}, "nesterov": {"discrete": [0, 1]}, "beta": 0.9}'
    (curve,) = curves(trials, studies=studies_of(trials).assign(dimensions=2, search_space=space))
    assert (curve.dimensions, curve.scaled_dimensions) == (2, 1)
    trend = search_trend(curve)
    assert trend is not None
    assert trend.dimensions == 1
    (unknown,) = curves(trials, studies=studies_of(trials).assign(search_space=None))
    assert unknown.scaled_dimensions == unknown.dimensions == 1


def test_the_note_is_given_where_the_effect_exceeds_the_interval_and_is_sure() -> None:
    effect = SearchEffect(
        factor=Interval(value=1.5, low=1.2, high=1.9), trials=64, dimensions=3,
        cheapest=(2.0, 1.21), largest=(1024.0, 1.82),
    )  # fmt: skip
    assert effect.note(Interval(value=40.0, low=32.0, high=50.0)) == (
        "the search moves the critical batch size by more than its interval: with unlimited trials "
        "it would be 1.5 [1.2, 1.9] times as large (the best of 64 in 3 tuned dimensions takes "
        "1.21 times the steps of its limit at batch size 2, 1.82 times at 1,024)"
    )
    assert effect.note(Interval(value=40.0, low=32.0, high=61.0)) is None
    assert effect.note(Interval(low=32.0)) is None
    unsure = replace(effect, factor=Interval(value=1.5, low=0.9, high=2.5))
    assert unsure.note(Interval(value=40.0, low=32.0, high=50.0)) is None


def test_it_is_the_batch_sizes_of_the_two_regimes_that_count() -> None:
    curve = drawn(np.random.default_rng(3), 3, 0.1)
    fit = replace(
        regimes(curve),
        perfect_scaling_until=Interval(value=9.0),
        maximal_parallelism_from=Interval(value=512.0),
        best_batch_size=None,
    )
    trend, effect = search_trend(curve), search_effect(curve, fit)
    assert trend is not None
    assert effect is not None
    (small,), (large,) = trend.excess([3]), trend.excess([1024])
    assert (*effect.cheapest, *effect.largest) == pytest.approx((3, small, 1024, large))
    assert effect.factor.value == pytest.approx(large / small)
    bounded = replace(fit, perfect_scaling_until=Interval(), maximal_parallelism_from=Interval())
    ends = search_effect(curve, bounded)
    assert ends is not None
    assert (ends.cheapest[0], ends.largest[0]) == (1, 2048)
    penalized = search_effect(curve, replace(fit, best_batch_size=Interval(value=7.0)))
    assert penalized is not None
    assert penalized.cheapest[0] == 7
    phases = BatchPhases(starts=(0, 10), sizes=(1, 2), schedule_steps=100)
    growing = tuple(replace(point, phases=phases) for point in curve.points)
    assert search_effect(replace(curve, points=growing), fit) is None


def test_the_report_gives_the_note() -> None:
    curve = drawn(np.random.default_rng(3), 3, 0.1)
    fit = regimes(curve)
    near = replace(fit, critical_batch_size=Interval(value=30.0, low=29.0, high=31.0))
    for regime, said in ((near, True), (replace(fit, critical_batch_size=Interval()), False)):
        view = View(target=None, pairs=[(curve, regime)], recorded=True, names={})
        texts = [note["text"] for note in warnings(view, [None])]
        assert any(text.startswith("the search moves") for text in texts) == said
