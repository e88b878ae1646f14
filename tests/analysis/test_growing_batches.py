"""Curves of studies whose batch size grows during training: examples are those of all phases."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import curves, figures, regimes
from analysis.curves.limits import Limit, within
from analysis.fit.reference_lines import regime_spans
from analysis.notes import Note
from results.batch_phases import BatchPhases
from results.errors import ResultsError
from tests.analysis.conftest import search
from tests.analysis.gallery import Row
from tests.analysis.ruled import ruled

pytestmark = pytest.mark.usefixtures("closed_figures")


def phases(size: int) -> str:
    """Four times the batch size from step 40 on."""
    return json.dumps({"starts": [0, 40], "sizes": [size, 4 * size], "schedule_steps": 400})


def grown() -> pd.DataFrame:
    trials = search()
    return trials.assign(batch_sizes=trials["batch_size"].map(phases))


def true_examples(size: int, steps: float) -> float:
    return size * min(steps, 40) + 4 * size * max(0, steps - 40)


def test_points_have_the_examples_of_all_phases() -> None:
    (curve,) = curves(grown())
    (plain,) = curves(search())
    assert curve.grows
    assert not plain.grows
    for point, beside in zip(curve.points, plain.points, strict=True):
        assert point.steps is not None
        assert point.steps > 40
        assert point.examples == true_examples(point.batch_size, point.steps)
        assert beside.examples == point.steps * point.batch_size
    assert [row["examples"] for row in curve.tabulate()] == [p.examples for p in curve.points]


def test_quantities_that_rest_on_examples_are_not_given() -> None:
    (curve,), (plain,) = curves(grown()), curves(search())
    answer = regimes(curve, definition="zhang2024").to_dict()
    beside = regimes(plain, definition="zhang2024").to_dict()
    unknown = {"value": None, "low": None, "high": None}
    for name in ("perfect_scaling_until", "min_examples", "critical_batch_size_zhang2024"):
        assert answer[name] == unknown
        assert beside[name]["value"] is not None
    for name in ("maximal_parallelism_from", "critical_batch_size", "min_steps", "best"):
        assert answer[name] == beside[name]
    assert Note("grows") in answer["notes"]
    assert Note("grows") not in beside["notes"]
    assert {span.regime for span in regime_spans(regimes(curve))} == {2}


def test_a_length_is_a_share_of_the_budget_in_steps_of_the_first_batch_size() -> None:
    """The ramp's own steps are fewer: half the budget is not its end."""
    space = json.dumps({"decay": {"linear": [0.1, 0.9]}})
    trials = grown().assign(
        budget_steps=220, metaparameters=json.dumps({"learning_rate": 0.1, "decay_steps": 200})
    )
    studies = trials[["study", "batch_size"]].drop_duplicates().assign(search_space=space)
    (curve,) = curves(trials, studies=studies)
    assert not any(point.edges for point in curve.points)
    (without,) = curves(trials.assign(batch_sizes=None), studies=studies)
    assert all(point.edges for point in without.points)


@pytest.mark.slow
def test_the_figure_and_the_report_have_true_examples(tmp_path: Path) -> None:
    def ramp(row: Row) -> Row:
        if "beta2" not in row["study"]:
            return row
        return {**row, "batch_sizes": phases(row["batch_size"])}

    data = ruled(tmp_path / "runs", ramp)
    numbers = figures.numbers("tradeoff", data)
    curve, fit = next(pair for pair in data.pairs if pair[0].grows)
    of_curve = numbers[numbers["curve"] == curve.label]
    assert of_curve["examples"].tolist() == [
        true_examples(size, steps)
        for size, steps in zip(of_curve["batch_size"], of_curve["steps"], strict=True)
    ]
    assert of_curve["examples"].iloc[0] == 64 * 40 + 256 * 60
    assert of_curve["fitted_examples"].isna().all()
    assert numbers[numbers["curve"] != curve.label]["fitted_examples"].notna().all()
    figures.draw("tradeoff", data)
    assert fit is not None
    assert fit.min_examples.value is None


def test_a_budget_in_examples_is_refused() -> None:
    assert within(grown(), [Limit.parse("5000 steps")]) is not None
    with pytest.raises(ResultsError, match="grows during training") as caught:
        within(grown(), [Limit.parse("1e6 examples")])
    assert "steps" in str(caught.value.hint)


def test_phases_that_are_none_are_refused() -> None:
    assert BatchPhases.of(None) is None
    assert BatchPhases.of(np.nan) is None
    for text in ('{"starts": [0]}', '{"starts": [1], "sizes": [2], "schedule_steps": 3}'):
        with pytest.raises(ResultsError, match="are no phases"):
            BatchPhases.of(text)
