"""The five quantities and the slopes: what is claimed, what is bounded, and what covers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from analysis import Curve, regimes
from analysis.figure_data import FigureData, Query
from analysis.fit.convex import Fit, Points
from analysis.fit.interval import QUANTITIES
from analysis.fit.knee import log_steps, theta
from analysis.fit.locate import LinearProfile, Located, PlaceProfile
from analysis.formatting import interval
from analysis.notes import codes
from analysis.techniques.p_values import LEVELS
from tests.analysis.test_convex import TEXT
from tests.analysis.true_curves import (
    LogSteps,
    coverage,
    doublings,
    holds,
    knee,
    located,
    noisy,
    penalized,
    truth,
    two_lines,
)
from tests.marks import quick

Plain = Callable[..., Curve]
X = doublings(12)


def text(name: str) -> Located:
    y = np.log(TEXT[name])
    return located(Points(x=doublings(8), y=y, variance=np.zeros(8)))


def test_a_curve_that_never_scales_perfectly_says_so(plain_curve: Plain) -> None:
    """Whatever a knee would make of it: fewest examples of 208, and least steps of 35."""
    found = regimes(plain_curve([2**i for i in range(8)], TEXT["adamw"]))
    first, last = found.slopes["first"], found.slopes["last"]
    assert first.value == pytest.approx(-0.576, abs=0.002)
    assert last.value == pytest.approx(-0.220, abs=0.002)
    assert first.low is not None
    assert first.low > -0.9
    assert not found.small_level
    assert not found.large_level
    assert found.min_steps.value is found.min_steps.low is None
    assert 61 < found.min_steps.high < 80  # type: ignore[operator]
    assert found.min_examples.value is found.min_examples.low is None
    assert 486 < found.min_examples.high < 600  # type: ignore[operator]
    assert found.critical_batch_size.ends == (None, None, None)
    assert found.perfect_scaling_until.low is None
    assert found.perfect_scaling_until.high < 3  # type: ignore[operator]
    assert found.maximal_parallelism_from.high is None
    assert found.maximal_parallelism_from.low > 16  # type: ignore[operator]
    assert codes(found.notes) == ["small_end", "large_end"]
    assert {note.values["level"] for note in found.notes} == {"is not level"}
    assert "slope -0.58 [-0.86, -0.49], never -1" in found.notes[0]
    assert "slope -0.22 [-0.35, 0.00]" in found.notes[1]


def test_a_curve_that_nearly_has_both_regimes() -> None:
    found = text("muon")
    value, low, high = found.tested("slope_first", 0.9)
    assert value == pytest.approx(-0.89, abs=0.005)
    assert low == pytest.approx(-1)  # perfect scaling is not excluded
    assert -0.85 < high < -0.7
    assert found.tested("slope_last", 0.9)[0] == pytest.approx(-0.07, abs=0.005)
    assert np.exp(found.tested("critical_batch_size", 0.9)) == pytest.approx([13.1, 11, 15.7], 0.01)
    half, low, high = np.exp(found.tested("slope_half", 0.9))
    assert 8 < half < 16
    assert 4 < low < half < high < 64
    never = text("adamw").tested("slope_half", 0.9)
    assert np.isnan(never[1])  # it may have been above -1/2 from the first batch size on


@pytest.mark.parametrize("change", quick([-0.12, -0.17], 1))
def test_a_plateau_that_falls_is_not_called_level(change: float) -> None:
    """By 29 and 45 % over the last two doublings, where 20 % are allowed."""
    curve = two_lines(16, change)
    found = [located(noisy(curve, X, 0.05, seed)) for seed in range(40)]
    assert sum(each.large_level for each in found) <= 1
    true = truth(curve, X)
    for name in QUANTITIES:
        held = [holds(each.ends(name, 0.9), true[name]) for each in found]
        assert np.mean(held) >= 0.9, name
    assert all(np.isnan(each.ends("min_steps", 0.9)[:2]).all() for each in found[:5])


@pytest.mark.slow
def test_a_plateau_that_falls_slowly_has_the_numbers_of_the_tested_range() -> None:
    """By 4 % a doubling, which is level within the tolerance."""
    assert min(coverage(two_lines(16, -0.04), X, 0.05, 40).values()) >= 0.85


@pytest.mark.slow
def test_a_clean_knee_has_level_ends_and_narrow_intervals() -> None:
    curve, true = knee(60), truth(knee(60), X)
    found = [located(noisy(curve, X, 0.05, seed)) for seed in range(40)]
    assert np.mean([each.small_level and each.large_level for each in found]) >= 0.6
    widths = []
    for each in found:
        _, low, high = each.tested("critical_batch_size", 0.9)
        widths.append(high - low)
        assert holds((0.0, low - 0.1, high + 0.1), true["critical_batch_size"])
    assert np.exp(np.median(widths)) < 1.5
    assert min(coverage(curve, X, 0.05, 40).values()) >= 0.85


@pytest.mark.parametrize("bend", [0.7, 1.7, 3.0])
@pytest.mark.parametrize("count", [3, 4])
def test_few_batch_sizes_cover_whatever_the_bend(count: int, bend: float) -> None:
    x = doublings(count, 4.0 if count == 4 else 8.0)
    assert min(coverage(knee(np.exp(x.mean()), bend), x, 0.05, 40).values()) >= 0.85


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.8, 0.95])
def test_a_power_is_covered_and_claims_no_critical_batch_size(slope: float) -> None:
    def power(x: np.ndarray) -> np.ndarray:
        return 9 - slope * x

    held = coverage(power, X, 0.05, 40)
    for name in ("critical_batch_size", "min_steps", "min_examples"):
        assert held[name] >= 0.85
    found = [located(noisy(power, X, 0.05, seed)) for seed in range(20)]
    assert not any(each.large_level for each in found)


@pytest.mark.slow
def test_unequal_noise_that_repeats_show(plain_curve: Plain) -> None:
    """20 % at the smallest batch size, 3 % at the largest; three runs a batch size."""
    curve, deviation = knee(60), np.geomspace(0.2, 0.03, 12)
    true = truth(curve, X)
    held: dict[str, list[bool]] = {name: [] for name in QUANTITIES}
    sizes = np.repeat(np.exp(X).round(), 3)
    for seed in range(40):
        noise = np.random.default_rng(seed).normal(size=36) * np.repeat(deviation, 3)
        steps = np.exp(np.repeat(curve(X), 3) + noise)
        found = regimes(plain_curve(sizes, steps)).located
        for name in QUANTITIES:
            held[name].append(holds(found.ends(name, 0.9), true[name]))
    assert min(np.mean(each) for each in held.values()) >= 0.85


def flagged(curve: LogSteps, seeds: int, attribute: str, noise: float = 0.05) -> float:
    found = [located(noisy(curve, X, noise, seed)) for seed in range(seeds)]
    return float(np.mean([getattr(each, attribute) is not None for each in found]))


@pytest.mark.slow
def test_a_penalty_is_flagged_and_its_minimum_located() -> None:
    """40 % more examples at batch size 1 than at the fewest; the minimum lies between, where
    examples hardly change."""
    curve = penalized(400, 0.52)
    at = np.linspace(X[0], X[-1], 10_001)
    examples = curve(at) + at
    assert np.exp(examples[0] - examples.min()) == pytest.approx(1.4, abs=0.02)
    cheapest = float(at[examples.argmin()])
    found = [located(noisy(curve, X, 0.05, seed)) for seed in range(60)]
    penalties = [each for each in found if each.penalty is not None]
    assert len(penalties) >= 54
    factors = [each.penalty for each in penalties if each.penalty is not None]
    assert np.median(factors) == pytest.approx(1.4, rel=0.1)
    held = [holds(each.tested("best_batch_size", 0.9), cheapest) for each in penalties]
    assert np.mean(held) >= 0.85
    # Perfect scaling is measured from the minimum.
    true = truth(curve, X)
    for name in ("perfect_scaling_until", "min_examples", "critical_batch_size"):
        assert np.mean([holds(each.ends(name, 0.9), true[name]) for each in found]) >= 0.85, name
    assert all(each.small_level for each in penalties)


@pytest.mark.parametrize("noise", quick([0.03, 0.1], 1))
@pytest.mark.parametrize("curve", quick([knee(60), knee(60, 0.6), knee(400, 3.0)], 1))
def test_a_knee_has_seldom_a_penalty_or_a_rise(curve: LogSteps, noise: float) -> None:
    assert flagged(curve, 60, "penalty", noise) <= 0.05
    assert flagged(curve, 60, "rise", noise) <= 0.05


def test_a_rise_is_flagged_and_measured() -> None:
    curve = two_lines(16, 0.1)
    assert flagged(curve, 40, "rise") >= 0.85
    found = located(noisy(curve, X, 0.02, 1))
    true = np.exp(curve(X[-1:])[0] - truth(curve, X)["min_steps"])
    assert found.rise == pytest.approx(true, rel=0.1)
    assert found.large_level
    # The least steps lie inside of the range.
    assert found.fits.best.quickest < X[-1] - 1


def test_bounds_are_printed_as_such() -> None:
    found = text("adamw")
    shown = {
        name: interval(*(None if math.isnan(end) else np.exp(end) for end in found.ends(name, 0.9)))
        for name in QUANTITIES
    }
    assert shown == {
        "perfect_scaling_until": "≤ 2.38",
        "maximal_parallelism_from": "≥ 24",
        "critical_batch_size": "open",
        "min_steps": "≤ 71",
        "min_examples": "≤ 564",
    }
    falls = located(noisy(two_lines(128, -0.25), X, 0.03, 0))
    rises = located(noisy(knee(1), X, 0.03, 0))
    assert (falls.small_level, falls.large_level) == (True, False)
    assert (rises.small_level, rises.large_level) == (False, True)
    value, low, high = falls.ends("critical_batch_size", 0.9)
    assert np.isnan([value, high]).all()
    assert low > np.log(16)
    value, low, high = rises.ends("critical_batch_size", 0.9)
    assert np.isnan([value, low]).all()
    assert 0 < high < np.log(4)


@st.composite
def measured(draw: st.DrawFn) -> Points:
    """Any three to nine points."""
    gaps = draw(st.lists(st.floats(0.2, 2.5), min_size=2, max_size=8))
    x = np.concatenate([[0.0], np.cumsum(gaps)])
    y = draw(st.lists(st.floats(-2, 9), min_size=len(x), max_size=len(x)))
    known = draw(st.sampled_from([0.0, 0.01]))
    return Points(x=x, y=np.array(y), variance=np.full(len(x), known))


@settings(max_examples=40, deadline=None)
@given(measured())
def test_nothing_lies_outside_of_the_tested_range(points: Points) -> None:
    found = located(points)
    first, last = points.span
    along = [found.fits.best.log_steps(x) for x in found.fits.best.grid]
    for name in QUANTITIES:
        value, low, high = found.ends(name, 0.9)
        if name in QUANTITIES[:3] and name != "critical_batch_size":
            ends = [end for end in (value, low, high) if np.isfinite(end)]
            assert all(first - 1e-9 <= end <= last + 1e-9 for end in ends), name
        if np.isfinite(value):
            assert not low > value + 1e-9
            assert not high < value - 1e-9
    steps = found.tested("min_steps", 0.9)[0]
    assert steps == pytest.approx(min(along), abs=1e-6)
    examples = found.tested("min_examples", 0.9)[0]
    assert examples <= min(np.array(along) + found.fits.best.grid) + 1e-6
    # Critical batch sizes too: E falls nowhere faster than S rises, and the other way round.
    assert first - 1e-6 <= examples - steps <= last + 1e-6


@settings(max_examples=12, deadline=None)
@given(measured())
def test_intervals_of_all_levels_are_nested(points: Points) -> None:
    found = located(points)
    for name in [*QUANTITIES, "slope_first", "slope_last", "slope_half"]:
        before = found.tested(name, 0.05)
        for level in sorted(LEVELS):
            value, low, high = found.tested(name, level)
            assert value == before[0]
            # Ends are found to 1e-3 of the excess's root; an open one stays so.
            assert not low > before[1] + 2e-3
            assert not high < before[2] - 2e-3
            assert not (np.isfinite(low) and np.isnan(before[1]))
            assert not (np.isfinite(high) and np.isnan(before[2]))
            before = (value, low, high)


@pytest.mark.parametrize("seed", quick(range(6), 2))
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_ends_of_linear_quantities_are_where_the_excess_is_that_of_the_level(
    seed: int, level: float
) -> None:
    fit = Fit.of(noisy(knee(60), X, 0.08, seed))
    family, (first, last) = fit.family, fit.points.span
    for quantity in (
        family.log_steps(last),
        family.log_examples(first),
        family.log_examples(first) - family.log_steps(last),
        (family.log_steps(X[4]) - family.log_steps(X[3])).over(X[1]),
    ):
        value = fit.at(quantity)
        low, high = LinearProfile(fit, quantity).ends(level)
        for sign, end in ((-1, low), (1, high)):

            def beyond(distance: float, quantity=quantity, value=value, sign=sign) -> float:
                excess = fit.excess(quantity, value + sign * distance) - fit.most(level)
                return min(excess, 1e6)

            away = brentq(beyond, 0.0, 3.0, xtol=1e-6)
            assert end == pytest.approx(value + sign * away, abs=2e-3)


def test_an_end_stops_where_no_curve_of_the_family_goes() -> None:
    """Slopes end at -1, which no excess rejects."""
    fit = Fit.of(noisy(knee(60), X, 0.05, 0))
    slope = (fit.family.log_steps(X[1]) - fit.family.log_steps(X[0])).over(X[1])
    profile = LinearProfile(fit, slope, (-1.0, 0.0))
    assert profile.ends(0.9)[0] == pytest.approx(-1.0)
    assert profile.holds(-1.0, 0.9)
    assert not profile.holds(0.0, 0.9)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_ends_of_a_crossing_are_where_it_is_rejected(level: float) -> None:
    found = located(noisy(knee(60), X, 0.08, 3))
    fit = found.fits.best
    least, over = fit.family.log_steps(X[-1]), np.log(1.2)

    def rejected(x: float) -> bool:
        return fit.excess(fit.family.log_steps(x) - least, over) > fit.most(level)

    fine = np.linspace(X[0], X[-1], 12 * 11 * 4 + 1)
    kept = [x for x in fine if not rejected(x)]
    crossing = found.profiles["maximal_parallelism_from"][0]
    assert isinstance(crossing, PlaceProfile)
    low, high = crossing.ends(level)
    spacing = crossing.where[1] - crossing.where[0]
    assert low == pytest.approx(kept[0], abs=spacing)
    assert high == pytest.approx(kept[-1], abs=spacing)


def test_dlrm_has_no_fewer_steps_than_were_measured() -> None:
    """The knee went 4.5 times below the least that MLPerf's submitters report."""
    data = FigureData(Query(sources=["published"], where="workload = 'dlrm'"))
    assert data.curves
    for curve, found in zip(data.curves, data.regimes, strict=True):
        assert found is not None
        least = min(point.steps for point in curve.points if point.steps is not None)
        value, low, high = np.exp(found.located.tested("min_steps", 0.9))
        assert value > least * np.exp(-found.noise)
        assert low > least * np.exp(-3 * found.noise)
        assert found.min_steps.ends == (None, None, high)


def test_the_line_of_a_curve_and_its_slopes_are_given_along_it(plain_curve: Plain) -> None:
    sizes = np.exp(X)
    found = regimes(plain_curve(sizes, np.exp(log_steps(X, theta(100, 40)))))
    along = found.slopes_at(sizes)
    assert along == pytest.approx(-40 / (40 + sizes), abs=0.09)
    assert np.isnan(found.slopes_at([0.25, 8192])).all()
