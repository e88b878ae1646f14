"""The packaged sweep of a ramp and a rule, smaller: what is recorded, trained again and drawn."""

from __future__ import annotations

import json

import pytest

import batchscale as bs
from analysis import curves
from batchscale.run import Run
from experiments.config.compile import load
from experiments.records.status import trial_cost
from experiments.scheduling import rounds
from results.batch_phases import BatchPhases

SMALL = [
    "trials=4",
    "budget=60 steps",
    "grid.batch_size.from=[32, 64]",
    "target=validation_error < 0.3",
]
RULE = "learning_rate sqrt, from 64"
RAMP = "2x at 0.25, 4x at 0.5"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("swept") / "runs"
    return bs.sweep("digits-rules", results=root, address="none", overrides=SMALL)


@pytest.mark.slow
def test_examples_are_counted_truly(swept: Run) -> None:
    trials = swept.trials
    technique = trials["technique"].map(json.loads)
    ramp, rule = (
        technique.map(lambda each, key=key: each.get(key, "")) for key in ("ramp", "rule")
    )
    assert set(ramp) == {"", RAMP}
    assert set(rule) == {"", RULE}
    sizes = {
        (plan.batch_size, plan.technique.get("ramp", "")): plan.batches
        for plan in load("digits-rules", SMALL).studies()
    }
    measured = swept.measurements.groupby("trial")
    for row in trials.assign(ramp=ramp).to_dict("records"):
        of_study = sizes[row["batch_size"], row["ramp"]]
        assert row["examples_run"] == of_study.examples(row["steps_run"])
        evaluations = measured.get_group(row["trial"])
        assert [of_study.examples(step) for step in evaluations["step"]] == [
            *evaluations["examples"]
        ]
        phases = BatchPhases.of(row["batch_sizes"])
        assert (phases is not None) == (row["ramp"] == RAMP)
        if phases is not None:
            assert phases.examples(row["steps_run"]) == row["examples_run"]
            assert phases.schedule_steps == 60
    grown = trials[(ramp == RAMP) & (trials["steps_run"] > 20)]
    assert (grown["examples_run"] > grown["steps_run"] * grown["batch_size"]).all()


@pytest.mark.slow
def test_the_cost_of_a_study_is_that_of_its_mean_batch_size(swept: Run) -> None:
    plans = {plan.id: plan for plan in load("digits-rules", SMALL).studies()}
    costs = {row["study"]: trial_cost(dict(row)) for _, row in swept.studies.iterrows()}
    assert costs == {
        name: rounds.trial_cost(study.budget_steps, study.mean_batch_size)
        for name, study in plans.items()
    }


@pytest.mark.slow
def test_examples_to_target_are_those_of_all_phases(swept: Run) -> None:
    ran = dict(zip(swept.trials["trial"], swept.trials["examples_run"], strict=True))
    ramped = [curve for curve in curves(swept.trials) if curve.grows]
    assert len(ramped) == 2
    for point in (point for curve in ramped for point in curve.points):
        assert point.examples == ran[point.trial]


def test_a_recorded_trial_with_a_ramp_is_equal_again(swept: Run) -> None:
    trials = swept.trials
    longest = trials[trials["technique"].str.contains("ramp")].nlargest(1, "steps_run")
    assert bs.rerun(longest["trial"].iloc[0], results=swept.results.root).equal


def test_the_sweep_is_complete_and_nothing_is_trained_again(swept: Run) -> None:
    again = bs.sweep("digits-rules", results=swept.results.root, address="none", overrides=SMALL)
    assert again.summary is not None
    assert again.summary.trained == 0


@pytest.mark.slow
def test_a_rule_is_a_row_of_the_techniques_table() -> None:
    rows = bs.techniques("own", where="experiment = 'gallery-rules'")
    assert [row["name"] for row in rows][:2] == [
        "rule learning_rate none, from 64", "rule learning_rate sqrt, from 64",
    ]  # fmt: skip
