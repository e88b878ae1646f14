"""Budgets that results are asked under."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from analysis.curves.limits import Limit, steps_within, within
from analysis.figures.paper.budgets import series
from results.errors import ResultsError


@pytest.mark.parametrize(
    ("text", "amount", "unit", "again"),
    [
        ("5000 steps", 5000, "steps", "5,000 steps"),
        ("1 epoch", 1, "epochs", "1 epoch"),
        (" 0.5Epochs ", 0.5, "epochs", "0.5 epochs"),
        ("1e6 examples", 1e6, "examples", "1,000,000 examples"),
        ("12,800 steps", 12_800, "steps", "12,800 steps"),
    ],
)
def test_a_budget_is_read_and_written(text: str, amount: float, unit: str, again: str) -> None:
    limit = Limit.parse(text)
    assert (limit.amount, limit.unit) == (amount, unit)
    assert str(limit) == again
    assert Limit.parse(again) == limit


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("soon", "'soon' is not a budget", "5000 steps"),
        ("5000", "'5000' has no unit", "10 epochs"),
        ("5 epocs", "'epocs' is not a unit of a budget", "did you mean epochs"),
        ("5 hours", "'hours' is not a unit of a budget", "5000 steps"),
        ("-3 steps", "'-3 steps' is not a budget", "5000 steps"),
        ("0 steps", "a budget of '0 steps' is none", "5000 steps"),
        ("1e999 steps", "a budget of '1e999 steps' is none", "5000 steps"),
    ],
)
def test_what_is_no_budget_is_one_line_and_a_hint(text: str, said: str, hint: str) -> None:
    with pytest.raises(ResultsError, match="^" + said) as caught:
        Limit.parse(text)
    assert hint in str(caught.value.hint)


def trials(**columns: object) -> pd.DataFrame:
    rows = {
        "workload": "w",
        "batch_size": [10, 100, 1000],
        "train_examples": [1000, 1000, 1000],
        "status": "COMPLETE",
        "stop_reason": "target",
        "steps_to_target": [300.0, 30.0, 4.0],
        "last_miss": [290.0, 29.0, 3.0],
        "steps_run": [300, 30, 4],
    }
    return pd.DataFrame({**rows, **columns})


def test_steps_within_a_budget() -> None:
    frame = trials()
    assert steps_within(frame, Limit.parse("25.5 steps")).tolist() == [25, 25, 25]
    assert steps_within(frame, Limit.parse("3 epochs")).tolist() == [300, 30, 3]
    assert steps_within(frame, Limit.parse("2999 examples")).tolist() == [299, 29, 2]
    thirds = trials(batch_size=[1, 3, 7], train_examples=21)
    assert steps_within(thirds, Limit.parse("0.1 epochs")).tolist() == [2, 0, 0]


def test_an_epoch_is_whole_batches() -> None:
    frame = trials(batch_size=[64, 1024, 1297], train_examples=1297)
    assert steps_within(frame, Limit.parse("12 epochs")).tolist() == [240, 12, 12]
    larger = trials(batch_size=[64, 2000, 1297], train_examples=1297)
    assert steps_within(larger, Limit.parse("12 epochs")).tolist() == [240, 0, 12]


def test_budgets_that_nobody_named_are_the_trials_own() -> None:
    """Trained for 50 epochs, of which one is one batch of 1,024 of the 1,297 examples."""
    frame = trials(
        batch_size=[64, 1024, 1297], train_examples=1297, budget_steps=[1000, 50, 50], role="search"
    )
    assert str(series(frame)[-1]) == "50 epochs"
    unknown = frame.assign(train_examples=[1297, 1000, np.nan])
    assert str(series(unknown)[-1]) == "50,000 examples"


def test_epochs_of_a_training_set_of_unknown_size_are_an_error() -> None:
    part = trials(train_examples=[1000, None, 1000])
    for frame in (part, trials().drop(columns="train_examples")):
        with pytest.raises(ResultsError, match="size of the training set of w is not") as caught:
            within(frame, [Limit.parse("3 epochs")])
        assert "examples" in str(caught.value.hint)


def test_what_was_reached_later_was_not_reached() -> None:
    cut = within(trials(), [Limit.parse("3 epochs"), Limit.parse("30 steps")])
    assert np.isnan(cut["steps_to_target"]).tolist() == [True, False, True]
    assert np.isnan(cut["last_miss"]).tolist() == [True, False, True]
    assert cut["stop_reason"].tolist() == ["budget", "target", "budget"]
    same = trials()
    assert within(same, []) is same


def test_a_trial_dominated_beyond_the_budget_is_known_not_to_have_reached_it() -> None:
    lost = trials(stop_reason="dominated", status="INCOMPLETE", steps_to_target=np.nan)
    cut = within(lost, [Limit.parse("30 steps")])
    assert cut["stop_reason"].tolist() == ["budget", "budget", "dominated"]
    assert cut["status"].tolist() == ["COMPLETE", "COMPLETE", "INCOMPLETE"]
    dead = within(trials(status="INFEASIBLE", stop_reason="diverged"), [Limit.parse("1 step")])
    assert set(dead["stop_reason"]) <= {"diverged", "budget"}
