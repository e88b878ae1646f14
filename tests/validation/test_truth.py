"""The known answers themselves: by the definitions, by closed forms, by another path."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import curves, regimes
from analysis.fit.convex import Points
from analysis.fit.interval import QUANTITIES
from analysis.fit.locate import locate
from tests.validation.test_shapes import assert_same, row_of
from validation import __main__ as command
from validation import exact, page, searches, surface
from validation.surface import Surface, search, sweep, train
from validation.tally import bounded, covers, run, tally

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
    cell = searches.Cell(dimensions=2, trials=16, noise=0.05)
    where = {"dimensions": 2, "trials": 16, "noise": 0.05, "block": 3}
    row = row_of(page.kept("searches"), **where)
    truth = {name: float(np.log(float(str(row[f"true:{name}"])))) for name in QUANTITIES}
    assert_same(searches.count(searches.Block(cell=cell, number=3, truth=truth)), row)


def test_the_page_is_what_the_counts_of_searches_give() -> None:
    text = page.sections(page.PAGE.read_text(encoding="utf-8"))["searches"]
    assert text == searches.render(page.kept("searches")).strip()


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


def test_searches_are_located_as_regimes_says_of_each() -> None:
    cell = searches.Cell(dimensions=3, trials=16, noise=0.05)
    made, located = searches.measured(cell, 0, 1)
    one = regimes(made[0])
    for name in QUANTITIES:
        ends = [None if np.isnan(end) else np.exp(end) for end in located[0].ends(name, 0.9)]
        assert list(getattr(one, name).to_dict().values()) == pytest.approx(ends)


def test_the_median_search_without_noise_is_the_least_excess() -> None:
    """One dimension, a dense search: the bottom of the bowl, wherever it lies."""
    steps = surface.median_of_searches(Surface(dimensions=1, noise=0.0), 128, 8)
    x = np.log([1.0, 45.0, 1e5])
    assert steps(x) == pytest.approx(surface.best_steps(x), abs=2e-3)
    found = exact.quantities(steps, 0.0, 11 * LOG2, 0.2)
    true = exact.quantities(surface.best_steps, 0.0, 11 * LOG2, 0.2)
    assert found == pytest.approx(true, abs=0.01)


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
        (["shaps"], "unknown part 'shaps'; known: shapes, searches, limits"),
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
