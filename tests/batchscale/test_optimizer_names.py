"""An optimizer of a user's file, from sweep to curves: loaded by its file, called by a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import batchscale as bs
from experiments.scheduling.messages import Event, StudyPlanned
from tests.batchscale.conftest import EXPERIMENT, Command
from tests.experiments.files import OPTIMIZER

TEXT = (
    EXPERIMENT.replace("[sgd, momentum]", "[sgd, my_opt.py:Sign as Sign-1]")
    .replace("momentum: {learning_rate: {log: [0.03, 1]}, momentum: 0.9}",
             "Sign-1: {learning_rate: {log: [1e-3, 0.02]}}")
    .replace("32..256", "[32, 64, 128]").replace("trials: 4", "trials: 2")
    .replace("< 0.1", "< 0.2")
)  # fmt: skip


@pytest.mark.slow
def test_it_is_called_by_its_name_throughout(command: Command, here: Path) -> None:
    (here / "my_opt.py").write_text(OPTIMIZER)
    (here / "named.yaml").write_text(TEXT)
    seen: list[Event] = []
    run = bs.sweep("named.yaml", results="runs", address="none", observer=seen.append)
    planned = [event.label for event in seen if isinstance(event, StudyPlanned)]
    assert planned[-1] == "Sign-1, batch 128"
    assert set(run.trials["optimizer"]) == {"sgd", "Sign-1"}

    curves = {curve["optimizer"]: curve for curve in run.regimes(baseline="Sign-1")}
    assert curves["Sign-1"]["against"] is None
    assert curves["sgd"]["against"]["baseline"] == "Sign-1"

    trial = run.trials[run.trials["optimizer"] == "Sign-1"]["trial"].iloc[0]
    assert bs.rerun(trial, results="runs", trust=True).equal
    answer = command("trial", "--from", trial, "--results", "runs", "--trust")
    assert answer.status == 0, answer.err
    assert answer.out.splitlines()[-1].endswith(": equal")
    for given in (("status", "runs"), ("sweep", "named.yaml", "--dry-run"), ("regimes", "runs")):
        said = command(*given).out
        assert "Sign-1" in said
        assert "my_opt" not in said
    rows = json.loads(command("status", "runs", "--json").out)
    assert {row["optimizer"] for row in rows} == {"sgd", "Sign-1"}


def test_a_trial_of_its_own_takes_a_name(here: Path) -> None:
    (here / "my_opt.py").write_text(OPTIMIZER)
    run = bs.trial(
        "digits-softmax", optimizer="my_opt.py:Sign as S", batch_size=64, learning_rate=0.01,
        budget="20 steps",
    )  # fmt: skip
    assert run.study.optimizer_label == "S"
    plain = bs.trial(
        "digits-softmax", optimizer="my_opt.py:Sign", batch_size=64, learning_rate=0.01,
        budget="20 steps",
    )  # fmt: skip
    assert plain.trial.id == run.trial.id
    assert plain.measurements["validation_error"].equals(run.measurements["validation_error"])
