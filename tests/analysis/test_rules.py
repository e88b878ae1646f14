"""The cost of rules, on results whose numbers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from analysis import figures
from analysis.figure_data import FigureData
from results.errors import ResultsError
from tests.analysis.legible import faults
from tests.analysis.measured import measured
from tests.analysis.reference import hold
from tests.analysis.ruled import BUDGET, HALF_LIFE, TRANSFER, ruled

pytestmark = pytest.mark.usefixtures("closed_figures")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    return ruled(tmp_path_factory.mktemp("rules") / "runs")


def row(frame: pd.DataFrame, rule: str, size: int) -> dict[str, Any]:
    """A row of the figure's numbers; None for what is unknown."""
    (record,) = frame[(frame["rule"] == rule) & (frame["batch_size"] == size)].to_dict("records")
    return {str(name): None if pd.isna(value) else value for name, value in record.items()}


def test_numbers_do_not_change_silently(data: FigureData) -> None:
    hold("rules", figures.numbers("rules", data))


def test_a_rule_has_the_steps_of_the_point_that_is_best_at_the_base(data: FigureData) -> None:
    """Not of the point that is best where it is used; its interval is that of the four best."""
    numbers = figures.numbers("rules", data)
    base, twice, far = (row(numbers, TRANSFER, size) for size in (64, 128, 256))
    assert (base["steps"], base["free_steps"], base["cost"]) == (100, 100, 1)
    assert (twice["steps"], twice["steps_low"], twice["steps_high"]) == (75, 60, 75)
    assert twice["cost"] == pytest.approx(1.5)
    assert twice["cost_low"] < 1.5 < twice["cost_high"]
    # Row 0 of the four has not reached the target: the bar is open above.
    assert (far["steps"], far["steps_low"], far["steps_high"]) == (60, 50, None)
    assert far["cost"] == pytest.approx(60 / 25)
    assert far["cost_low"] is not None
    assert far["cost_high"] is None


def test_a_bar_that_is_open_above_ends_in_a_triangle(data: FigureData) -> None:
    """It is drawn longer than the point is high, so that it is not read as an interval's end."""
    ax = figures.draw("rules", data)
    lines = [
        (np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), line) for line in ax.lines
    ]
    (triangle,) = [
        (float(x[0]), float(y[0]))
        for x, y, line in lines
        if (line.get_marker(), line.get_markerfacecolor()) == ("^", "none")
    ]
    assert 256 / 1.1 < triangle[0] < 256 * 1.1
    assert 60 / 25 < triangle[1] < ax.get_ylim()[1]
    bars = [y.tolist() for x, y, _ in lines if x.tolist() == [triangle[0]] * 2]
    assert [bar[1] for bar in bars] == [triangle[1]]


def test_a_point_that_was_not_trained_elsewhere_gives_way_to_the_next(tmp_path: Path) -> None:
    """Row 1 is the best at the base; without it at 128 the next best of the base is row 3."""
    rows = ruled(tmp_path / "runs", role="repeat")
    cost = row(figures.numbers("rules", rows), TRANSFER, 128)
    # Of rows 3, 0, 2 and 4, in the order of the base.
    assert (cost["steps"], cost["steps_low"], cost["steps_high"]) == (60, 40, 70)
    assert row(figures.numbers("rules", rows), TRANSFER, 256)["steps"] == 60


def test_a_rule_that_leaves_the_rate_to_be_tuned_has_its_own_best(data: FigureData) -> None:
    costs = [row(figures.numbers("rules", data), HALF_LIFE, size) for size in (64, 128, 256)]
    assert [cost["steps"] for cost in costs] == [100, 45, 30]
    assert [cost["cost"] for cost in costs] == pytest.approx([1, 0.9, 1.2])
    # The error bar of a best of N: X(1)²/X(4) to X(4).
    assert costs[1]["steps_low"] == pytest.approx(45 * 45 / 62)
    assert costs[1]["steps_high"] == 62


@pytest.mark.parametrize(
    "changes",
    [
        {"stop_reason": "budget", "steps_run": 500},
        {"status": "INFEASIBLE", "stop_reason": "diverged", "steps_run": 9},
    ],
)
def test_where_the_point_misses_the_target_the_cost_has_a_lower_end_alone(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """That of the best of the other three, which take 60 steps and more: one run that misses does
    not say that such points usually do."""
    missed = ruled(tmp_path / "runs", steps_to_target=None, last_miss=None, **changes)
    cost = row(figures.numbers("rules", missed), TRANSFER, 128)
    assert (cost["steps"], cost["steps_low"], cost["steps_high"]) == (None, 60, None)
    assert (cost["cost"], cost["cost_high"]) == (None, None)
    assert cost["cost_low"] == pytest.approx(60 / 65)  # over X(4) of the free search
    figure = figures.draw("rules", missed).get_figure(root=True)
    assert isinstance(figure, Figure)
    assert faults(figure) == []


@pytest.mark.parametrize(
    ("status", "least"), [("COMPLETE", 500), ("INFEASIBLE", BUDGET)], ids=["budget", "diverged"]
)
def test_a_point_that_misses_needs_more_than_it_ran(
    tmp_path: Path, status: str, least: int
) -> None:
    """One that diverged does not reach the target within the budget, however early that was."""
    changes: dict[str, Any] = {
        "status": status,
        "steps_to_target": None,
        "last_miss": None,
        "steps_run": 500,
    }
    cost = row(
        figures.numbers("rules", ruled(tmp_path / "runs", rows=(0, 1, 2, 3), **changes)),
        TRANSFER,
        128,
    )
    assert (cost["steps"], cost["steps_low"], cost["steps_high"]) == (None, least, None)


def test_low_ends_begin_after_the_evaluation_before(tmp_path: Path) -> None:
    """The point that is best at the base reached the target at step 75, evaluated at 55 before."""
    bracketed = row(figures.numbers("rules", ruled(tmp_path / "runs", last_miss=55)), TRANSFER, 128)
    assert (bracketed["steps"], bracketed["steps_low"], bracketed["steps_high"]) == (75, 56, 75)


def test_at_the_base_both_are_the_best_of_a_search(data: FigureData) -> None:
    base = row(figures.numbers("rules", data), TRANSFER, 64)
    assert base["steps_low"] == pytest.approx(100 * 100 / 130)
    assert base["steps_high"] == 130
    assert base["cost_low"] == pytest.approx(1 / base["cost_high"])


def test_without_a_rule_or_a_free_search_there_is_nothing_to_draw(
    tmp_path: Path, data: FigureData
) -> None:
    with pytest.raises(ResultsError, match="no curve has a rule") as caught:
        figures.draw("rules", measured(tmp_path / "runs"))
    assert caught.value.hint
    with pytest.raises(ResultsError, match="have no free search beside them"):
        figures.draw("rules", data.only("technique LIKE '%rule%'"))


def test_notes_say_which_trial_is_a_point_of_a_rule(data: FigureData) -> None:
    """The best at 128 is row 4 (40 steps), which nothing chooses; the transferred one takes 75."""
    notes = {}
    for curve in data.curves:
        text = str(curve.group["technique"])
        rule = next((name for name in (TRANSFER, HALF_LIFE) if name in text), "")
        notes[rule] = [note for note in curve.notes if "a rule gives the learning rate" in note]
        if rule == TRANSFER:
            assert {point.batch_size: point.steps for point in curve.points}[128] == 40
    assert {rule: len(each) for rule, each in notes.items()} == {TRANSFER: 1, HALF_LIFE: 0, "": 0}
