"""Means over a part of a split are no values of the whole one: in curves, best metrics, final
losses and figures."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import FillBetweenPolyCollection

import batchscale as bs
import results
from analysis import figures
from analysis.curves.best_metric import PARTIAL, BestPoint, best_metrics
from analysis.curves.curve import curves
from analysis.curves.final_losses import final_losses
from analysis.curves.limits import Limit, within
from analysis.curves.thinned_evaluations import every_second
from analysis.figure_data import FigureData, Query
from analysis.notes import Note, codes
from results.store import Store
from results.targets.evaluations import Evaluations
from results.targets.target import Target
from tests.analysis.legible import figure_of
from tests.reported import study_row, trial_row
from tests.results.partial_rows import partial, whole
from tests.results.test_partial_evaluations import (
    HIT,
    MISS,
    OPEN,
    Rows,
    both,
    measurements,
    simulated,
)

EASY = "validation_error < 0.5"


def run(tmp_path: Path, rows: Rows, sizes: dict[str, int], **more: Any) -> Path:
    """Trials that were trained to an error of 0.2, or as ``more`` says."""
    store = Store(tmp_path / "runs")
    for name, size in sizes.items():
        of_study = study_row("sgd", size), 0, 0.1, len(rows[name]), len(rows[name]) - 1
        ran = {"trial": name, "target_value": 0.2, "examples_run": len(rows[name]) * size}
        row = {**trial_row(*of_study), **ran, **more}
        points = measurements({name: rows[name]}).drop_columns(["run", "experiment"]).to_pylist()
        store.commit("e", measurements=points, trials=[row])
    return tmp_path / "runs"


SIZES = {"a": 8, "b": 16, "c": 32}
ROWS: Rows = {
    "a": [MISS, OPEN, OPEN, whole(0.1)],
    "b": [MISS, MISS, HIT, whole(0.1)],
    "c": [MISS, OPEN, MISS],  # never below the target for certain
}


def test_regimes_say_how_many_brackets_are_wider(tmp_path: Path) -> None:
    root = run(tmp_path, ROWS, SIZES)
    rows = results.open(root)
    never = rows.trials["trial"].eq("c")
    trials = rows.trials.assign(
        stop_reason=rows.trials["stop_reason"].mask(never, "budget"),
        steps_to_target=rows.trials["steps_to_target"].mask(never),
    )
    (curve,) = curves(trials)
    assert not {"wider_bracket", "undecided"} & {*codes(curve.notes)}
    found = rows.where("trial <> 'c'").with_target(EASY)
    (curve,) = curves(found.trials)
    assert [(point.last_miss, point.minimum) for point in curve.points] == [(1, 4), (2, 3)]
    assert Note("wider_bracket", n=1) in curve.notes
    missed = found.trials.assign(undecided_evaluations=[0, 2], steps_to_target=[4, np.nan])
    (curve,) = curves(missed)
    assert Note("undecided", n=1) in curve.notes
    two = run(tmp_path / "two", ROWS, {"a": 8, "b": 16})
    decided = Query(sources=[two], target=EASY, where="undecided_evaluations IS NULL")
    assert FigureData(decided).recorded["trial"].tolist() == ["b"]


def test_the_note_is_printed_with_regimes(tmp_path: Path) -> None:
    sizes = {name: 2**at for at, name in enumerate("abcdef", 3)}
    rows = dict.fromkeys(sizes, ROWS["a"])
    (found,) = bs.regimes(run(tmp_path, rows, sizes), target=EASY)
    assert any(note.startswith("6 trials have a wider bracket: ") for note in found["notes"])
    (recorded,) = bs.regimes(tmp_path / "runs")
    assert "wider_bracket" not in recorded["note_codes"]


def test_a_budget_before_the_last_miss_leaves_nothing_open() -> None:
    trials = pd.DataFrame(
        {
            "batch_size": [8, 8],
            "steps_to_target": [30.0, 30.0],
            "last_miss": [20.0, 5.0],
            "undecided_evaluations": [1, 1],
            "status": "COMPLETE",
            "stop_reason": "target",
            "steps_run": 30,
        }
    )
    cut = within(trials, [Limit.parse("10 steps")])
    np.testing.assert_array_equal(cut["undecided_evaluations"], [np.nan, 1])


def thinned(rows: Rows, target: Target) -> pd.DataFrame:
    measured = measurements(rows).to_pandas()
    trials = both(rows, target).reset_index().assign(
        study="s", target_metric=target.metric, target_value=target.value, lower_is_better=True,
        steps_run=[len(each) for each in rows.values()], stop_reason="target",
    )  # fmt: skip
    found = every_second(trials, Evaluations.of_frame(measured))
    assert found is not None
    return found


def test_thinned_brackets_keep_their_width() -> None:
    # Kept: the steps 1, 3, 5. In full evaluations 3 may have been the first kept hit.
    rows: Rows = {"a": [MISS, MISS, OPEN, HIT, HIT, whole(0.1)]}
    found = thinned(rows, Target.parse(EASY)).iloc[0]
    assert (found["last_miss"], found["steps_to_target"]) == (1, 5)
    # 5 decides nothing: 7 is the first certain hit that is kept, and 3 the last miss.
    rows = {"a": [MISS, MISS, MISS, HIT, OPEN, HIT, HIT, whole(0.1)]}
    found = thinned(rows, Target.parse(EASY)).iloc[0]
    assert (found["last_miss"], found["steps_to_target"]) == (3, 7)
    # 5 is a miss after a hit.
    rows = {"a": [MISS, MISS, MISS, HIT, MISS, HIT, HIT, whole(0.1)]}
    found = thinned(rows, Target.parse(EASY)).iloc[0]
    assert (found["last_miss"], found["steps_to_target"]) == (5, 7)


def test_thinned_brackets_hold_those_of_full_evaluations() -> None:
    full, early = simulated(200)
    for value in (0.3, 0.5, 0.7):
        target = Target(metric="validation_error", value=value)
        exact, found = thinned(full, target), thinned(early, target)
        hit = found["steps_to_target"].notna()
        assert hit.sum() > 50
        assert (found["last_miss"] < exact["steps_to_target"])[hit].all()
        assert (exact["steps_to_target"] <= found["steps_to_target"])[hit].all()


def best(tmp_path: Path, row: list[dict[str, Any]], limit: str | None, **more: Any) -> BestPoint:
    opened = results.open(run(tmp_path, {"a": row}, {"a": 8}, stop_reason="budget", **more))
    given = None if limit is None else Limit.parse(limit)
    (curve,) = best_metrics(opened.trials, Evaluations([opened]), [given])
    framed = best_metrics(opened.trials, Evaluations.of_frame(opened.measurements), [given])
    assert framed == [curve]
    return curve.points[0]


def test_the_best_is_that_of_whole_evaluations(tmp_path: Path) -> None:
    point = best(tmp_path, [whole(0.45), partial(0.3, 0.45, 0.6), whole(0.5)], None)
    assert (point.value, point.step) == (0.45, 1)


def test_the_best_is_not_known_where_a_part_may_be_better(tmp_path: Path) -> None:
    rows = [whole(0.45), partial(0.47, 0.44, 0.6), whole(0.5), partial(0.1, 0.0, 0.2)]
    point = best(tmp_path, rows, "3 steps")
    assert (point.value, point.bound, dict(point.why)) == (None, 0.45, {PARTIAL: 1})
    only = best(tmp_path / "only", [partial(0.3, 0.2, 0.4), whole(0.5)], "1 steps")
    assert (only.value, only.bound, dict(only.why)) == (None, None, {PARTIAL: 1})
    other = [whole(0.45), partial(0.9, 0.8, 1.0, about="validation_loss"), whole(0.5)]
    assert best(tmp_path / "other", other, None).value is None


def test_the_best_where_higher_is_better(tmp_path: Path) -> None:
    rows = [whole(0.5), partial(0.6, 0.4, 0.5), whole(0.45)]
    assert best(tmp_path, rows, None, lower_is_better=False).value == 0.5
    rows[1] = partial(0.4, 0.3, 0.51)
    assert best(tmp_path / "more", rows, None, lower_is_better=False).value is None


def values(tmp_path: Path, row: list[dict[str, Any]], *under: str) -> list[float]:
    opened = results.open(
        run(tmp_path, {"a": row}, {"a": 8}, stop_reason="budget", steps_to_target=None)
    )
    (found,) = final_losses(
        opened.trials,
        Evaluations([opened]),
        Target(metric="validation_error", value=0.3),
        under=[Limit.parse(text) for text in under],
    )
    return [point.value for point in found.points]


def test_final_losses_are_of_whole_evaluations(tmp_path: Path) -> None:
    # Steps 1 … 5 of 8 examples.
    rows = [whole(0.9), whole(0.7), partial(0.1, 0.0, 0.3), whole(0.5), whole(0.4)]
    assert values(tmp_path, rows) == [0.4]
    # At the whole evaluations, and between two of them; not beside the part.
    found = values(
        tmp_path / "under", rows, "8 examples", "16 examples", "20 examples", "24 examples",
        "28 examples", "32 examples", "36 examples",
    )  # fmt: skip
    share = math.log(4.5 / 4) / math.log(5 / 4)
    assert found == pytest.approx([0.9, 0.7, 0.5, 0.5 - share * 0.1])
    with pytest.raises(results.errors.ResultsError, match="no run that ended at its budget"):
        values(tmp_path / "none", [whole(0.9), partial(0.1, 0.0, 0.3)])


def bands(ax: Any) -> list[FillBetweenPolyCollection]:
    return list(figure_of(ax).findobj(FillBetweenPolyCollection))


def test_training_curves_have_a_band_where_parts_were_evaluated(tmp_path: Path) -> None:
    known = partial(0.5, 0.4, 0.6, error=0.05)
    rows: Rows = {"a": [whole(0.8), known, whole(0.1)], "b": [whole(0.8), whole(0.1)]}
    root = run(tmp_path, rows, {"a": 8, "b": 16})
    data = FigureData(Query(sources=[results.open(root)]))
    frame = figures.numbers("training", data)
    assert frame["validation_error"].tolist() == [0.8, 0.5, 0.1, 0.8, 0.1]
    np.testing.assert_array_equal(frame["standard_error"], [np.nan, 0.05, np.nan, np.nan, np.nan])
    ax = figures.draw("training", data)
    (band,) = bands(ax)
    corners = {(x, round(y, 9)) for x, y in np.asarray(band.get_paths()[0].vertices).tolist()}
    assert corners == {(1, 0.8), (2, 0.45), (2, 0.55), (3, 0.1)}
    figure = figure_of(ax)
    legend = figure.legends[0]
    assert "± 1 standard error" in [text.get_text() for text in legend.get_texts()]
    other = FigureData(replace(data.query, where="batch_size = 16"))
    assert "standard_error" not in figures.numbers("training", other)
    assert not bands(figures.draw("training", other))
