"""A map-style Dataset of any length: nothing takes time or memory by its size but an evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

import batchscale as bs
import experiments.execution.forecast
import experiments.training.check
from batchscale import sweeps
from experiments.engines import stacking_refusal
from experiments.engines.metric_sums import chunks
from experiments.plan import WorkloadRef
from experiments.training.study_context import StudyContext
from tests.problems import study, trials

HUGE = """
import torch
from torch.utils.data import Dataset
from batchscale import Classification


class Numbers(Dataset):
    \"\"\"Numbers as their bits; to read many more of them than a probe needs is an error.\"\"\"

    def __init__(self, size):
        self.size, self.read = size, 0

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        self.read += 1
        if not 0 <= index < self.size or self.read > 50_000:
            raise RuntimeError(f"example {index}, after {self.read}")
        bits = torch.tensor([(index >> i) & 1 for i in range(8)], dtype=torch.float32)
        return bits, index & 1


class Huge(Classification):
    target = "validation_error < 0.01"
    validation: int = 64

    def data(self):
        return {"train": Numbers(10**12), "validation": Numbers(self.validation)}

    def model(self):
        return torch.nn.Linear(8, 2)
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "huge.py").write_text(HUGE)
    monkeypatch.chdir(tmp_path)
    return "huge.py:Huge"


@pytest.mark.parametrize("engine", ["module", "stacked"])
def test_a_trial(spec: str, engine: str) -> None:
    run = bs.trial(spec, batch_size=32, learning_rate=1.0, budget="60 steps", engine=engine)
    assert run.steps_to_target is not None
    assert run.study.train_examples == 10**12


@pytest.mark.slow
def test_check_and_a_dry_run_look_at_a_part(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments.training.check, "_RATE_SECONDS", 0.02)
    monkeypatch.setattr(experiments.execution.forecast, "_TIMED", 0.02)
    findings = {finding.check: finding for finding in bs.check(spec, validation=10**9)}
    assert findings["evaluation"].passed
    assert findings["evaluation"].finding.startswith("the first 1,024 examples of validation in 3")
    small = {finding.check: finding.finding for finding in bs.check(spec)}
    assert small["evaluation"].startswith("validation in 3 ways")
    grid = {"batch_size": 32, "optimizer": ["sgd"], "validation": [64, 10**8]}
    plan = sweeps.plan({"workload": spec, "grid": grid, "trials": 2, "budget": "100 steps"})
    hours = plan.groupby("validation")["worker_hours"].min()
    assert hours[10**8] > 1000 * hours[64]  # what a look at all of it would take


@pytest.mark.slow
def test_what_a_probe_of_the_stack_reads(spec: str) -> None:
    of = study(workload=WorkloadRef(spec=spec, fields={"validation": 10**9}), batch_size=32)
    assert stacking_refusal(StudyContext.load(of), trials(of, 2)) is None


def test_chunks_are_made_one_by_one() -> None:
    cut = chunks(slice(0, 10**15), 1000)
    assert next(cut).tolist() == list(range(1000))
    assert next(cut)[0] == 1000
    assert [len(chunk) for chunk in chunks(slice(0, 25), 10)] == [10, 10, 5]
    assert [len(chunk) for chunk in chunks(slice(0, 0), 10)] == [0]
