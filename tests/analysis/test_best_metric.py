"""The best metric under a budget, against a slow twin on frames."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import results
from analysis.curves.best_metric import (
    AT_TARGET,
    DIVERGED,
    DOMINATED,
    SOONER,
    TOO_SOON,
    UNMEASURED,
    BestCurve,
    best_metrics,
)
from analysis.curves.limits import Limit
from results.targets.evaluations import Evaluations

LIMITS = [Limit.parse(text) for text in ("40 steps", "3 epochs", "5000 examples")]


def plain(trials: pd.DataFrame, looks: pd.DataFrame, limit: Limit | None) -> dict[int, float]:
    """The best error of the first N feasible trials of each batch size, NaN where not known; one
    curve, without stopping, dominated trials or enlargements."""
    feasible = trials[trials["status"] != "INFEASIBLE"].sort_values("index")
    n = feasible.groupby("batch_size").size().min()
    found = {}
    for _, rows in feasible.groupby("batch_size"):
        size, rows = int(rows["batch_size"].iloc[0]), rows.iloc[:n]
        mine = looks[looks["trial"].isin(rows["trial"])]
        known = True
        if limit is not None:
            epoch = int(rows["train_examples"].iloc[0] // size)
            an = {"steps": Fraction(1), "epochs": Fraction(epoch), "examples": Fraction(1, size)}
            steps = int(limit.amount * an[limit.unit])
            mine = mine[mine["step"] <= steps]
            known = bool((rows["steps_run"] >= steps).all())
        elif (rows["stop_at_target"] & rows["stop_reason"].eq("target")).any():
            known = False
        found[size] = mine["validation_error"].min() if known else np.nan
    return found


@pytest.mark.slow
def test_it_is_what_frames_say(paper_results: Path) -> None:
    opened = results.open(paper_results)
    trials, looks = opened.trials, opened.measurements
    limits = [*LIMITS, None]
    curves = best_metrics(trials, Evaluations([opened]), limits)
    assert len(curves) > 30
    seen = 0
    for curve in curves:
        rows = trials
        for name, value in curve.group.items():
            cells = rows[name]
            rows = rows[cells.isna() if value is None else cells.eq(value)]
        expected = plain(rows, looks, curve.limit)
        assert [point.batch_size for point in curve.points] == list(expected)
        for point, value in zip(curve.points, expected.values(), strict=True):
            assert point.value == (None if np.isnan(value) else value)
            assert (point.value is None) == bool(point.why)
            seen += point.value is not None
    assert seen > 100


def test_a_folder_gives_what_a_frame_gives(paper_results: Path) -> None:
    opened = results.open(paper_results)
    some = opened.where("experiment = 'stopping'")
    first = best_metrics(some.trials, Evaluations([some]), LIMITS[:1])
    again = best_metrics(some.trials, Evaluations.of_frame(some.measurements), LIMITS[:1])
    assert first == again


def frames() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two trials at one batch size, both run for 10 steps, looked at each second one."""
    rows = [
        {"trial": name, "study": "s", "workload": "w", "batch_size": 8, "index": i,
         "role": "search", "status": "COMPLETE", "stop_reason": "budget", "stop_at_target": False,
         "target_metric": "validation_error", "target_value": 0.1, "lower_is_better": True,
         "steps_to_target": np.nan, "last_miss": np.nan, "steps_run": 10}
        for i, name in enumerate("ab")
    ]  # fmt: skip
    errors = {"a": [0.9, 0.5, 0.7, 0.6, 0.65], "b": [0.8, np.nan, 0.5, 0.9, 0.9]}
    looks = [
        {"trial": name, "step": step, "validation_error": error}
        for name in errors
        for step, error in zip((2, 4, 6, 8, 10), errors[name], strict=True)
    ]
    return pd.DataFrame(rows), pd.DataFrame(looks)


def one(trials: pd.DataFrame, looks: pd.DataFrame, limit: str | None) -> BestCurve:
    given = None if limit is None else Limit.parse(limit)
    (curve,) = best_metrics(trials, Evaluations.of_frame(looks), [given])
    return curve


def test_the_earliest_of_equal_looks_is_named() -> None:
    point = one(*frames(), "8 steps").points[0]
    assert (point.value, point.trial, point.step, point.trials) == (0.5, "a", 4, 2)
    assert one(*frames(), "3 steps").points[0].value == 0.8


def test_higher_is_better_where_the_target_says_so() -> None:
    trials, looks = frames()
    point = one(trials.assign(lower_is_better=False), looks, "10 steps").points[0]
    assert (point.value, point.trial, point.step) == (0.9, "a", 2)


@pytest.mark.parametrize(
    ("columns", "limit", "reason"),
    [
        ({"stop_reason": "target", "stop_at_target": True}, "11 steps", AT_TARGET),
        ({"stop_reason": "target", "stop_at_target": True}, None, AT_TARGET),
        ({"stop_reason": "target"}, "11 steps", SOONER),
        ({"stop_reason": "budget"}, "11 steps", SOONER),
        ({"stop_reason": "dominated", "status": "INCOMPLETE", "keep": 4}, "11 steps", DOMINATED),
    ],
)
def test_a_trial_that_was_cut_short_leaves_a_gap(
    columns: dict[str, object], limit: str | None, reason: str
) -> None:
    trials, looks = frames()
    cut = trials.index == 0
    for name, value in columns.items():
        trials[name] = (
            trials.get(name, pd.Series(np.nan, trials.index)).astype(object).mask(cut, value)
        )
    trials.loc[1, "steps_run"] = 100
    point = one(trials, looks, limit).points[0]
    assert point.value is None
    assert point.why == {reason: 1}
    assert point.why_text == f"1 {reason}"
    assert point.bound == 0.5
    assert one(trials, looks, "10 steps").points[0].value == 0.5


def test_trials_that_count_and_were_not_measured_leave_a_gap() -> None:
    trials, looks = frames()
    point = one(trials, looks[looks["trial"] == "b"], "4 steps").points[0]
    assert (point.value, point.bound, point.why) == (None, 0.8, {UNMEASURED: 1})
    early = one(trials, looks, "1 step").points[0]
    assert (early.value, early.bound, early.why) == (None, None, {TOO_SOON: 2})


def test_infeasible_trials_do_not_count() -> None:
    trials, looks = frames()
    dead = trials.assign(status=["INFEASIBLE", "COMPLETE"], stop_reason=["diverged", "budget"])
    point = one(dead, looks, "4 steps").points[0]
    assert (point.value, point.trials) == (0.8, 1)
    # Beyond the last exact order statistic a diverged trial counts as feasible: so it is cut.
    late = dead.assign(keep=1, steps_to_target=[np.nan, 4.0], last_miss=[np.nan, 2.0])
    assert one(late, looks, "20 steps").points[0].why[DIVERGED] == 1


def test_repeats_and_files_without_a_metric_have_none() -> None:
    trials, looks = frames()
    assert best_metrics(trials.assign(role="repeat"), Evaluations.of_frame(looks), [None]) == []
    bare = trials.assign(target_metric=None, target_value=np.nan)
    assert best_metrics(bare, Evaluations.of_frame(looks), [None]) == []
