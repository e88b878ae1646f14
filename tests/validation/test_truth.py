"""The known answers themselves: by the definitions, by closed forms, by another path."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import curves, regimes
from analysis.fit import knee as q
from analysis.fit.knee import QUANTITIES, log_steps, theta
from validation import __main__ as command
from validation import coverage, exact, outside, page, searches, surface
from validation.surface import Surface, search, sweep, train
from validation.tally import REGIMES, analyse, run, tally

LOG2 = math.log(2.0)
SURFACE = Surface(dimensions=2, noise=0.05)


@settings(max_examples=15)
@given(
    bend=st.floats(0.6, 7.0), critical=st.floats(3.0, 1000.0), tolerance=st.sampled_from([0.1, 0.2])
)
def test_a_knees_quantities_are_the_closed_forms(
    bend: float, critical: float, tolerance: float
) -> None:
    """Two ways that share no code but the curve."""
    params, first, last = theta(100.0, critical, bend), 0.0, 12 * LOG2
    tested = q.Range(first=np.array([first]), last=np.array([last]), tolerance=tolerance)
    found = exact.quantities(lambda x: log_steps(x, params), first, last, tolerance)
    for name, kind in QUANTITIES.items():
        closed = q.value(kind, params[None], tested, np.zeros(1, dtype=bool))[0]
        assert found[name] == pytest.approx(closed, abs=2e-4), name


def test_mccandlishs_knee_by_hand() -> None:
    found = exact.quantities(lambda x: np.log1p(np.exp(-x)), math.log(0.01), math.log(100.0), 0.2)
    values = {name: math.exp(value) for name, value in found.items()}
    assert values["perfect_scaling_until"] == pytest.approx(1.2 * 0.01 + 0.2, rel=1e-4)
    assert values["maximal_parallelism_from"] == pytest.approx(5.0, rel=1e-4)
    for name in ("critical_batch_size", "min_steps", "min_examples"):
        assert values[name] == pytest.approx(1.0, rel=1e-4)


def test_without_perfect_scaling_there_is_none_however_far_down() -> None:
    found = exact.quantities(outside.sloped(0.8), 0.0, 13 * LOG2, 0.2)
    assert found["perfect_scaling_until"] == -np.inf
    least = outside.LEAST * (1 + outside.CRITICAL**0.8)
    assert np.exp(found["min_examples"]) == pytest.approx(least, rel=1e-6)
    assert np.exp(found["critical_batch_size"]) == pytest.approx(outside.CRITICAL, rel=1e-3)


def test_a_curve_that_never_levels_has_no_plateau() -> None:
    found = exact.quantities(lambda x: 5.0 - x, 0.0, 10.0, 0.2)
    assert found["maximal_parallelism_from"] == found["critical_batch_size"] == np.inf
    assert found["min_steps"] == -np.inf


def test_the_plateau_of_a_rise_begins_where_its_least_says() -> None:
    steps = outside.rising(3, 0.1)
    found = exact.quantities(steps, 0.0, 13 * LOG2, 0.2)
    turn = np.log(8 * outside.CRITICAL)
    assert found["min_steps"] == pytest.approx(np.log(outside.LEAST * 9 / 8), abs=1e-4)
    assert steps(np.array([turn + 3 * LOG2]))[0] == pytest.approx(
        np.log(outside.LEAST * (1 + 1 / 64) * 1.1**3)
    )
    at = np.array([found["maximal_parallelism_from"]])
    assert steps(at)[0] == pytest.approx(np.log(1.2) + found["min_steps"], abs=1e-6)


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_two_corners_have_three_slopes(share: float) -> None:
    steps, at = outside.two_corners(share, 20.0, bend=3.0), np.log(outside.CRITICAL)
    first = at - (1 - share) * 20 * LOG2
    for middle, slope in ((first - 8, -1.0), (first + 10 * LOG2, share - 1), (first + 22, 0.0)):
        low, high = steps(np.array([middle - 0.5, middle + 0.5]))
        assert high - low == pytest.approx(slope, abs=1e-4)
    found = exact.quantities(steps, first, first + 20 * LOG2, 0.2)
    assert found["critical_batch_size"] == pytest.approx(at, abs=1e-3)


@settings(max_examples=30)
@given(
    kind=st.sampled_from(coverage.KINDS),
    bend=st.sampled_from([0.6, 1.0, 3.0]),
    seed=st.integers(0, 1000),
)
def test_grids_reach_what_their_names_say(kind: str, bend: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    half = coverage.half_width(theta(1.0, 1.0, bend))
    x = coverage.grid(rng, kind, half) / LOG2
    assert len(x) >= coverage.FEWEST
    assert np.allclose(np.diff(x), 0.5 if kind == "none" and -half < x[0] < half else 1.0)
    reaches = {
        "both": x[0] <= -half and x[-1] >= half,
        "small": x[0] <= -half < x[-1] < half,
        "large": -half < x[0] < half <= x[-1],
        "none": x[-1] < -half or x[0] > half or -half < x[0] < x[-1] < half,
    }
    assert reaches[kind]
    assert abs(x).max() <= half + 16


def test_counts_add_up() -> None:
    drawn = coverage.draw(np.random.default_rng(0), 12, "both", bend=1.0, noise=0.05, repeats=1)
    found = analyse(drawn)
    counts = tally(found, drawn)
    for name in REGIMES:
        there = sum(counts[f"there:{name}:{m}"] for m in range(7))
        assert there + counts[f"absent:{name}"] == counts["curves"] == 12
    low, high = found.low["min_steps"], found.high["min_steps"]
    inside = [not (a > np.log(1000) or b < np.log(1000)) for a, b in zip(low, high, strict=True)]
    assert counts["covered:min_steps"] == sum(inside)


def point_estimates(frame: pd.DataFrame) -> list[tuple[object, ...]]:
    (curve,) = curves(frame)
    return [(p.batch_size, p.steps, p.middles, p.fourth, p.trials) for p in curve.points]


def test_domination_and_its_order_change_no_point() -> None:
    """Trained to the end, dominated in their order, and in another."""
    frames = [
        sweep(SURFACE, 16, np.random.default_rng(5), "a", keep=keep, shuffled=shuffled)
        for keep, shuffled in ((None, None), (4, None), (4, 1))
    ]
    reasons = [frame["stop_reason"].value_counts() for frame in frames]
    assert "dominated" not in reasons[0]
    assert len({each["dominated"] for each in reasons[1:]}) > 1
    assert min(reasons[0]["budget"], reasons[0]["diverged"]) > 20
    whole, *others = [point_estimates(frame) for frame in frames]
    assert all(other == whole for other in others)


def test_a_search_has_n_feasible_trials_and_looks_are_the_sweeps() -> None:
    rng = np.random.default_rng(0)
    trials = search(SURFACE, 64, 16, rng)
    assert sum(trial.diverges is None for trial in trials) == 16
    assert trials[-1].diverges is None
    assert surface.evaluation_grid(30).tolist() == [*range(1, 22), 23, 25, 27, 29, 30]
    (row,) = train(trials[-1:], 10**6, None)
    grid = surface.evaluation_grid(10**6)
    at = int(np.flatnonzero(grid == row["steps_to_target"])[0])
    assert grid[at - 1] < trials[-1].time <= grid[at]
    assert row["last_miss"] == grid[at - 1]


def test_many_searches_at_once_are_what_regimes_says_of_each() -> None:
    cell = searches.Cell(dimensions=3, trials=16, noise=0.05)
    found = searches.search(cell, 0, 2)
    answer = analyse(searches.drawn(found, dict.fromkeys(QUANTITIES, 4.0)))
    for row, curve in enumerate(found):
        one = regimes(curve)
        for name in QUANTITIES:
            ends = (answer.value[name][row], answer.low[name][row], answer.high[name][row])
            given = [
                None if np.isnan(end) else pytest.approx(np.exp(end), rel=1e-6) for end in ends
            ]
            assert list(getattr(one, name).to_dict().values()) == given


def test_the_median_search_without_noise_is_the_least_excess() -> None:
    """One dimension, a dense search: the bottom of the bowl, wherever it lies."""
    steps = surface.median_of_searches(Surface(dimensions=1, noise=0.0), 128, 8)
    x = np.log([1.0, 45.0, 1e5])
    assert steps(x) == pytest.approx(surface.best_steps(x), abs=2e-3)
    far = exact.quantities(steps, 0.0, 11 * LOG2, 0.2)
    assert np.exp(far["critical_batch_size"]) == pytest.approx(surface.CRITICAL, rel=0.01)
    assert np.exp(far["maximal_parallelism_from"]) == pytest.approx(5 * surface.CRITICAL, rel=0.02)


def test_work_comes_back_in_order_from_any_number_of_processes() -> None:
    tasks = [3, 1, 4, 1, 5]
    one, two = (run(math.factorial, tasks, "", processes) for processes in (1, 2))
    assert one == two == [6, 1, 24, 1, 120]


def test_a_part_renews_its_own_section(tmp_path: Path) -> None:
    at = tmp_path / "page.md"
    page.write(["a", "b"], {"b": "old"}, at)
    page.write(["a", "b"], {"a": "first"}, at)
    page.write(["a", "b"], {"b": "new"}, at)
    text = at.read_text(encoding="utf-8")
    assert page.sections(text) == {"a": "first", "b": "new"}
    assert text.startswith(page.HEAD)
    assert text.index("## a") < text.index("## b")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["coverge"], "unknown part 'coverge'; known: coverage, outside, searches"),
        (["--processes", "0"], "--processes 0 is below 1"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
