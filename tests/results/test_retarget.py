"""Steps to another target: against a plain twin, and never beyond where a trial was stopped."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import results
from results.errors import ResultsError
from results.store import Store
from results.targets.target import Target
from tests.results import synthetic
from tests.results.plain_brackets import bracket


def test_an_easier_target_is_exact(folder: Path) -> None:
    run = results.open(folder).with_target("validation_error < 0.2")
    own = run.trials[run.trials.study == "digits-mlp-sgd-8"].set_index("index")
    assert own.steps_to_target.tolist()[:3] == [6.0, 8.0, 10.0]
    assert own.last_miss.tolist()[:3] == [4.0, 6.0, 8.0]
    assert own.steps_to_target.isna()[3]
    assert own.stop_reason.tolist() == ["target"] * 3 + ["budget"]
    assert set(run.trials.target_value) == {0.2}
    assert len(run.measurements) == 300  # the same dataset, with its measurements and studies
    assert len(run.studies) == 12


def test_the_recorded_target_changes_nothing(folder: Path) -> None:
    run = results.open(folder)
    again = run.with_target(synthetic.TARGET)
    pd.testing.assert_frame_equal(run.trials, again.trials)


def test_a_target_that_trials_were_cut_before_is_refused(folder: Path) -> None:
    run = results.open(folder)
    for harder in ("validation_error < 0.01", "train_error < 0.1"):
        with pytest.raises(ResultsError) as caught:
            run.with_target(harder)
        assert "\n" not in str(caught.value)
    with pytest.raises(ResultsError, match=r"36 of 48 trials were stopped at validation_error"):
        run.with_target("validation_error < 0.01")
    # 0.05 is where each trial stood when it was stopped, by one look: strictly better is less.
    assert run.with_target("validation_error < 0.0500001").trials.steps_to_target.min() == 8


def test_another_metric(folder: Path) -> None:
    run = results.open(folder)
    with pytest.raises(ResultsError, match="24 of 48 trials have no measurement of test_error"):
        run.with_target("test_error < 0.6")
    adam = run.where("optimizer = 'adam'")
    assert set(adam.with_target("test_error < 0.6").trials.steps_to_target) == {2.0}
    top = adam.with_target("validation_top5 > 0.6").trials
    assert set(top.steps_to_target) == {6.0}
    assert top.lower_is_better.tolist() == [False] * 24
    with pytest.raises(ResultsError, match="no measurement has the metric") as caught:
        run.with_target("validation_eror < 0.2")
    assert caught.value.hint == "did you mean validation_error?"
    with pytest.raises(ResultsError, match=r"has the wrong direction: .* better when lower"):
        run.with_target("validation_error > 0.2")
    with pytest.raises(ResultsError, match="is not METRIC < VALUE"):
        run.with_target("validation_error = 0.2")


def _single(tmp_path: Path, errors: list[float], **row: Any) -> results.Results:
    points = [
        {"trial": "a", "step": at, "metrics": {"validation_error": error}}
        for at, error in enumerate(errors, 1)
    ]
    trial = {
        "trial": "a",
        "study": "s",
        "target_metric": "validation_error",
        "target_value": 0.1,
        "lower_is_better": True,
        "steps_run": len(errors),
        **row,
    }
    Store(tmp_path / "runs").commit("e", measurements=points, trials=[trial])
    return results.open(tmp_path / "runs")


@pytest.mark.parametrize(
    ("row", "target", "expected"),
    [
        # Dominated at step 3: under an easier target it is censored there, or has its own hit.
        ({"stop_reason": "dominated", "status": "INCOMPLETE"}, 0.2, (None, "INCOMPLETE")),
        ({"stop_reason": "dominated", "status": "INCOMPLETE"}, 0.45, (2.0, "COMPLETE")),
        ({"stop_reason": "dominated", "status": "INCOMPLETE"}, 0.01, "refused"),
        # Ran on to the budget, or diverged: nothing was cut.
        ({"stop_reason": "budget", "status": "COMPLETE"}, 0.01, (None, "COMPLETE")),
        ({"stop_reason": "diverged", "status": "INFEASIBLE"}, 0.01, (None, "INFEASIBLE")),
        ({"stop_reason": "diverged", "status": "INFEASIBLE"}, 0.45, (2.0, "COMPLETE")),
        ({"stop_reason": "error", "status": "INCOMPLETE"}, 0.01, (None, "INCOMPLETE")),
        # Told not to stop at its target, it did not.
        (
            {"stop_reason": "target", "status": "COMPLETE", "stop_at_target": False},
            0.01,
            (None, "COMPLETE"),
        ),
    ],
)
def test_how_a_trial_ended_decides(
    tmp_path: Path, row: dict[str, Any], target: float, expected: Any
) -> None:
    run = _single(tmp_path, [0.5, 0.4, 0.3], **row)
    text = f"validation_error < {target}"
    if expected == "refused":
        with pytest.raises(ResultsError, match="1 of 1 trial was stopped at validation_error"):
            run.with_target(text)
        return
    found = run.with_target(text).trials.iloc[0]
    steps, status = expected
    assert found.status == status
    assert found.steps_to_target == steps if steps else math.isnan(found.steps_to_target)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.floats(0, 1), min_size=30, max_size=30), min_size=5, max_size=8),
    st.floats(0.05, 0.3),
    st.floats(0.3, 0.9),
    st.integers(1, 3),
)
def test_domination_never_changes_the_best_under_an_easier_target(
    curves: list[list[float]], hard: float, easy: float, keep: int
) -> None:
    """Trials stopped once they can no longer be among the ``keep`` best give the same best ones."""

    def first(curve: list[float], target: float) -> float:
        return next((at for at, value in enumerate(curve, 1) if value < target), math.inf)

    known = sorted(first(curve, hard) for curve in curves)[keep - 1]
    columns = ("trial", "step", "validation_error")
    rows = [
        (str(name), step, value)
        for name, curve in enumerate(curves)
        for step, value in enumerate(curve, 1)
        if step <= first(curve, hard) and step <= known + 1
    ]
    target = Target(metric="validation_error", value=easy)
    steps = [
        bracket(
            [dict(zip(columns, row, strict=True)) for row in rows if row[0] == str(name)], target
        )
        for name in range(len(curves))
    ]
    cut = sorted(math.inf if math.isnan(hit) else hit for hit, *_ in steps)[:keep]
    assert cut == sorted(first(curve, easy) for curve in curves)[:keep]
