"""A model as a workload and as a program: equal steps to target for the same seeds."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.plan import Measurement, Outcome, Pack, Trial, WorkloadRef
from experiments.programs.algorithm import OWN
from experiments.programs.training import ProgramTraining
from experiments.training.pack_training import Training
from tests import problems
from workloads.user_code.program import Program

pytestmark = pytest.mark.usefixtures("one_thread")

COMMAND = (
    *("python", "twin.py", "--batch_size={batch_size}", "--lr={learning_rate}"),
    *("--max_steps={budget}", "--seed={seed}"),
)
HERE = Path(__file__).parent
RATES = (0.003, 0.03, 0.3, 3.0)


def test_a_program_is_its_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(HERE.parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    trials = tuple(
        Trial(id=f"trial-{i}", index=i, seed=1000 + i, metaparameters={"learning_rate": rate})
        for i, rate in enumerate(RATES)
    )
    target, steps = "validation_error < 0.1", 150
    study = problems.study(target=target, budget_steps=steps, evaluate="full", keep=None)
    whole = Pack(id="pack", study=study, trials=trials, engine="module")
    engine = [e for each in Training(whole).run() for e in each]
    ref = WorkloadRef(spec=Program(command=COMMAND), base=str(HERE))
    of_program = replace(study, workload=ref, optimizer=OWN, evaluation_ratio=None)
    program = [
        event
        for trial in trials
        for each in ProgramTraining(
            Pack(id=trial.id, study=of_program, trials=(trial,)), folder=str(tmp_path)
        ).run()
        for event in each
    ]
    ends = [
        {
            e.trial: (e.status, e.stop_reason, e.steps_to_target, e.last_miss, e.examples_run)
            for e in events
            if isinstance(e, Outcome)
        }
        for events in (engine, program)
    ]
    assert ends[0] == ends[1]
    assert {end[1] for end in ends[0].values()} >= {"target", "budget"}
    curves = [
        {
            (e.trial, e.step): e.metrics["validation_error"]
            for e in events
            if isinstance(e, Measurement)
        }
        for events in (engine, program)
    ]
    assert curves[0] == curves[1]
