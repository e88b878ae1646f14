"""The known answers themselves: by the definitions, by closed forms, by another path."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis import curves, regimes
from analysis.fit.convex import Points
from analysis.fit.interval import QUANTITIES
from analysis.fit.locate import locate
from tests.validation.test_shapes import assert_same, row_of
from validation import __main__ as command
from validation import exact, harness, page, searches, surface
from validation.harness import Scenario, bounded, covers, tally
from validation.scenarios import BY_NAME, DIMENSIONS, NARROWING, SCENARIOS
from validation.searches import Searches
from validation.surface import Surface, search, sweep, train

LOG2 = math.log(2.0)
SURFACE = Surface(dimensions=2, noise=0.05)


def test_a_curve_that_rises_again_has_its_least_steps_where_they_are() -> None:
    """A parabola in log axes: least at 5, level on both sides of it."""
    found = exact.truth(lambda x: 3.0 + np.square(x - 5.0) / 8.0, 0.0, 9.0, 0.2)
    assert found.quantities["min_steps"] == pytest.approx(3.0)
    at = 5.0 - math.sqrt(8 * math.log(1.2))
    assert found.quantities["maximal_parallelism_from"] == pytest.approx(at, abs=1e-6)
    assert found.rise == pytest.approx(2.0)
    assert found.large_change == 0.0
    # Examples are least where the slope is -1, at 1.
    assert found.quantities["min_examples"] == pytest.approx(1.0 + 3.0 + 16 / 8)
    assert found.penalty == pytest.approx(1 / 8)
    assert found.small_change == 0.0


def test_counts_add_up() -> None:
    x = np.log(2.0) * np.arange(8.0)
    steps = [np.logaddexp(0.0, 2.4 - x), -x]
    found = [
        locate(Points(x=x, y=each, variance=np.full(8, 0.01)), tolerance=0.2) for each in steps
    ]
    right = {name: found[0].profiles[name][0].value for name in QUANTITIES}
    counts = tally(found, [right, dict.fromkeys(QUANTITIES, 99.0)])
    assert counts["curves"] == 2
    assert counts["covered:min_steps"] == 1  # 99 is not in any interval
    assert counts["open:maximal_parallelism_from"] >= 1  # that of a line, which is never level
    assert bounded(found[1], "critical_batch_size")
    assert covers(found[0], "min_steps", right["min_steps"])
    assert not covers(found[0], "min_steps", right["min_steps"] + 1)


@pytest.mark.slow
def test_a_block_of_searches_comes_out_again() -> None:
    cell = Searches(surface=SURFACE, trials=16)
    where = {"dimensions": 2, "trials": 16, "noise": 0.05, "block": 3}
    row = row_of(page.kept("searches"), **where)
    truth = {name: float(np.log(float(str(row[f"true:{name}"])))) for name in QUANTITIES}
    assert_same(BY_NAME["searches"].row(cell, truth, 3), row)


@pytest.mark.slow
def test_a_block_of_sweeps_that_stop_comes_out_again() -> None:
    (cell, *_) = BY_NAME["stopping"].cells
    row = row_of(page.kept("stopping"), dimensions=1, noise=0.05, block=1)
    assert_same(BY_NAME["stopping"].row(cell, None, 1), row)


def test_sweeps_that_stop_themselves_still_cover() -> None:
    counts = page.kept("stopping")
    for _, cell in counts.groupby(["surface", "dimensions", "noise"]):
        sums = cell.sum(numeric_only=True)
        assert sums["covered"] >= 0.85 * sums["curves"]
        assert sums["covered_early"] >= 0.85 * sums["early"]
    easy = counts[(counts["dimensions"] == 1) & (counts["noise"] == 0.05)]
    assert easy["trials"].sum() <= 64 * easy["curves"].sum() / 3


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_the_page_is_what_the_counts_give(scenario: Scenario) -> None:
    made = page.blocks(page.PAGE.read_text(encoding="utf-8"))
    for name, text in scenario.tables(page.kept(scenario.name)).items():
        assert made[name] == text.strip()


def test_every_scenario_has_its_counts() -> None:
    """A row a block of each cell, in order, and as many replicates as it says."""
    for scenario in SCENARIOS:
        keys = [scenario.key(cell) for cell in scenario.cells for _ in range(scenario.blocks)]
        frame = page.kept(scenario.name)
        assert frame[list(keys[0])].to_dict("records") == keys
        (column,) = {"curves", "tables", "laws"} & set(frame)
        assert (frame[column] == scenario.replicates).all()


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
    whole, *others = [
        [(p.batch_size, p.steps, p.middles, p.fourth, p.trials) for p in curve.points]
        for (curve,) in map(curves, frames)
    ]
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


def test_searches_are_located_as_regimes_says_of_each() -> None:
    cell = Searches(surface=Surface(dimensions=3, noise=0.05), trials=16)
    ((curve, _),) = searches.simulate(cell, None, np.random.default_rng(0), 1)
    _, located = searches.located(curve)
    one = regimes(curve)
    for name in QUANTITIES:
        ends = [None if np.isnan(end) else np.exp(end) for end in located.ends(name, 0.9)]
        assert list(getattr(one, name).to_dict().values()) == pytest.approx(ends)


def test_the_median_search_without_noise_is_the_least_excess() -> None:
    """One dimension, a dense search: the bottom of the bowl, wherever it lies."""
    steps = surface.median_of_searches(Surface(dimensions=1, noise=0.0), 128, 8)
    x = np.log([1.0, 45.0, 1e5])
    assert steps(x) == pytest.approx(surface.best_steps(x), abs=2e-3)
    found = exact.truth(steps, 0.0, 11 * LOG2, 0.2).quantities
    true = exact.truth(surface.best_steps, 0.0, 11 * LOG2, 0.2).quantities
    assert found == pytest.approx(true, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shaps"], "unknown part 'shaps'; known: shapes, searches, limits"),
        (["--processes", "0"], "--processes 0 is below 1"),
        (["--replicates", "0"], "--replicates 0 is below 1"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_a_scenario_is_counted_on_any_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts and tables are renewed, and they are those of one row after the other."""
    budgets = BY_NAME["budgets"]
    small = replace(budgets, cells=budgets.cells[:2])
    (tmp_path / "truth.md").write_text("<!-- made: budgets -->\n<!-- end -->\n")
    for module in (page, harness):
        monkeypatch.setattr(module, "PAGE", tmp_path / "truth.md")
    small.run(processes=2, replicates=1)
    rows = [small.row(cell, None, block, 1) for cell in small.cells for block in range(2)]
    assert page.kept("budgets").to_dict("records") == rows
    made = page.blocks((tmp_path / "truth.md").read_text())
    assert made["budgets"].count("| parabola |") == 2


def test_what_is_lost_in_a_search_comes_back_and_nothing_else_does() -> None:
    seen = 0
    by = ["surface", "noise", "dimensions"]
    for (kind, noise, tuned), group in page.kept("limits").groupby(by):
        mean = {name: float(group[name].mean()) for name in ("before", "after", "factor")}
        count, covered, notes = (int(group[n].sum()) for n in ("curves", "covered", "notes"))
        if kind == "distance²":
            seen += 1
            before, after = (abs(np.log(mean[name])) for name in ("before", "after"))
            assert after < max(before, 0.03), (noise, tuned)
            assert tuned in (1, 2) or covered >= 0.6 * count
        elif kind == "distance², not narrowing":
            seen += 1
            assert abs(np.log(mean["factor"])) < 0.08
            assert notes <= 0.1 * count
    assert seen == 3 * len(DIMENSIONS)


def limited(dimensions: int, narrowing: float = NARROWING) -> Searches:
    surface = Surface(dimensions=dimensions, noise=0.2, narrowing=narrowing)
    return Searches(surface=surface, trials=64, multiple=30.0, described=True)


def test_the_bowl_narrows_and_has_its_power() -> None:
    far, near = np.log(1e9), np.log(1e-9)
    for power in (1.0, 2.0, 4.0):
        ratios = []
        for x, centre in ((near, [0.3, 0.45]), (far, [0.6, 0.55])):
            u = np.array(centre) + np.array([[0.0, 0.1], [0.0, 0.2]])
            once, twice = surface.excess(u, np.array(x), narrowing=1.0, power=power)[0]
            assert twice / once == pytest.approx(2**power, rel=1e-5)
            ratios.append(once)
        assert ratios[1] / ratios[0] == pytest.approx(2, rel=1e-5)
        edge = np.array([0.3, 0.45 + 0.25])
        found = surface.excess(edge, np.array(near), power=power)[0]
        assert found == pytest.approx(0.75, rel=1e-5)


def test_the_loss_is_that_of_the_best_points_critical_batch_size() -> None:
    losses = [searches.loss(limited(d), 64) for d in (1, 4)]
    assert 1 < losses[0] < 1.3 < 1.6 < losses[1] < 3
    assert searches.loss(limited(3, narrowing=0.0), 64) == pytest.approx(1, abs=0.1)


@pytest.mark.slow
def test_a_block_of_limits_comes_out_again() -> None:
    """Three dimensions: of a third that is lost, most comes back."""
    row = row_of(page.kept("limits"), surface="distance²", noise=0.2, dimensions=3, block=0)
    assert_same(BY_NAME["limits"].row(limited(3), row["true"], 0), row)
    assert row["before"] < 0.85
    assert abs(np.log(row["after"])) < 0.6 * abs(np.log(row["before"]))
