"""A trial that failed says nothing of its batch size; what it says of itself is told."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from analysis import curves
from analysis.notes import codes
from results.failures import failures

Make = Callable[..., pd.DataFrame]
TRACE = 'Traceback (most recent call last):\n  File "my.py", line 2, in forward\n'


def failed(trials: pd.DataFrame, rows: pd.Series, error: str | None) -> pd.DataFrame:
    """``trials`` whose ``rows`` have failed with this ``error``."""
    trials = trials.assign(error=trials.get("error", pd.Series(None, trials.index, dtype=object)))
    columns = ["status", "stop_reason", "steps_to_target", "last_miss", "error"]
    trials.loc[rows, columns] = ["INCOMPLETE", "error", None, None, error]
    return trials


def test_a_batch_size_at_which_all_failed_is_no_point(search: Make, studies_of: Make) -> None:
    """It was "target not reached", and counted as a batch size that had been tested."""
    trials = search()
    lost = failed(trials, trials["batch_size"].eq(64), TRACE + "RuntimeError: not with 64\n")
    (curve,) = curves(lost, studies=studies_of(trials))
    assert 64 not in curve.batch_sizes
    assert curve.censored == []
    assert "16 trials failed at batch size 64: RuntimeError: not with 64" in curve.notes
    assert not {"not_run", "infeasible"} & {*codes(curve.notes)}
    (whole,) = curves(trials)
    others = [point for point in whole.points if point.batch_size != 64]
    assert [point.steps for point in curve.points] == [point.steps for point in others]


def test_some_of_a_batch_size_failed(search: Make) -> None:
    trials = search()
    few = trials["batch_size"].isin((64, 128)) & trials["index"].lt(3)
    (curve,) = curves(failed(trials, few, "KeyError: 'x'"))
    assert {64, 128} <= {*curve.batch_sizes}
    assert "6 trials failed at batch sizes 64, 128: KeyError: 'x'" in curve.notes
    (whole,) = curves(trials)
    assert "failed" not in codes(whole.notes)


def test_a_batch_size_of_interrupted_trials_was_not_run_yet(search: Make, studies_of: Make) -> None:
    trials = search()
    cut = trials["batch_size"].eq(64)
    trials.loc[cut, ["status", "stop_reason"]] = ["INCOMPLETE", None]
    trials.loc[cut, ["steps_to_target", "last_miss"]] = None
    (curve,) = curves(trials, studies=studies_of(trials))
    assert 64 not in curve.batch_sizes
    assert "not run yet: batch size 64" in curve.notes


def test_failed_and_interrupted_runs_are_not_misses(search: Make) -> None:
    """Two of five runs reached the target, and their batch size was "mostly missed"."""
    runs = search(n=5, keep=None).assign(role="repeat")
    lost = runs["batch_size"].eq(64) & runs["index"].lt(3)
    some = failed(runs, lost, "KeyError: 'x'")
    some.loc[lost & runs["index"].eq(0), "stop_reason"] = "interrupted"
    (curve,), (reached,) = curves(some), curves(runs[~lost])
    assert [point.steps for point in curve.points] == [point.steps for point in reached.points]
    assert not {"runs_missed", "runs_mostly_missed"} & {*codes(curve.notes)}
    assert "2 trials failed at batch size 64: KeyError: 'x'" in curve.notes
    (none,) = curves(failed(runs, runs["batch_size"].eq(64), "KeyError: 'x'"))
    assert 64 not in none.batch_sizes


def test_all_have_failed(search: Make) -> None:
    trials = search(sizes=(8, 16))
    (curve,) = curves(failed(trials, trials["batch_size"].gt(0), "RuntimeError: never"))
    assert curve.batch_sizes == [8, 16]
    assert "32 trials failed at batch sizes 8, 16: RuntimeError: never" in curve.notes


@pytest.mark.parametrize(
    ("errors", "lines"),
    [
        ([], []),
        ([None], ["1 trial failed at batch size 8: no error is recorded"]),
        ([TRACE + "A: 1\n\n", "A: 1"], ["2 trials failed at batch sizes 8, 9: A: 1"]),
        (["A\x07"], [r"1 trial failed at batch size 8: A\x07"]),
        (
            ["A", "B", "B", "C", "D"],
            [
                "2 trials failed at batch sizes 9, 10: B",
                "1 trial failed at batch size 8: A",
                "1 trial failed at batch size 11: C (and 1 more error)",
            ],
        ),
    ],
)
def test_each_error_is_one_line(errors: list[str | None], lines: list[str]) -> None:
    rows = [
        {"stop_reason": "error", "error": error, "batch_size": 8 + i}
        for i, error in enumerate(errors)
    ]
    rows.append({"stop_reason": "target", "error": "not of these", "batch_size": 1})
    assert failures(pd.DataFrame(rows)) == lines
