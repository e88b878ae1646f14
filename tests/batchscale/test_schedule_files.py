"""A schedule of a user's file, the documentation's: in sweeps, trials, and again from a record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import batchscale as bs
from experiments import schedules
from experiments.execution.executors.base import ExecutorContext
from experiments.execution.executors.in_process import InProcess
from tests.batchscale.blocks import blocks
from tests.batchscale.conftest import Command

TEXT = """\
workload: digits-softmax
grid:
  batch_size: [64, 128]
  optimizer: [sgd, adam]
  schedule: [constant, trapezoid.py:Trapezoid]
search:
  warmup: 0.05
  Trapezoid: {end_factor: 0.1}
trials: 2
budget: 60 steps
target: validation_error < 0.15
engine: module
"""


@pytest.fixture
def folder(here: Path) -> Path:
    """The folder, with the documentation's file and an experiment of it."""
    (block,) = [block for block in blocks("docs/optimizers.md") if block.title == "trapezoid.py"]
    (here / "trapezoid.py").write_text(block.text)
    (here / "trapezoid.yaml").write_text(TEXT)
    return here


def test_its_factor_and_its_arguments(folder: Path) -> None:
    schedule = schedules.get("trapezoid.py:Trapezoid as trapezoid", str(folder))
    assert (schedule.name, schedule.label) == ("trapezoid.py:Trapezoid", "trapezoid")
    assert schedules.label("trapezoid.py:Trapezoid") == "Trapezoid"
    assert schedule.arguments == {
        *("stable", "stable_steps", "stable_examples", "stable_tokens", "end_factor"),
        *("decay", "decay_steps", "decay_examples", "decay_tokens"),
        *("warmup", "warmup_steps", "warmup_examples", "warmup_tokens"),
    }
    values = {"stable": 0.5, "decay": 0.2, "warmup": 0.1, "end_factor": 0.25}
    resolved = schedule.resolve(values, 20)
    assert resolved == {
        "stable_steps": 10, "decay_steps": 4, "warmup_steps": 2, "end_factor": 0.25,
    }  # fmt: skip
    factors = [schedule.factor(step, resolved) for step in range(18)]
    assert factors[:13] == [0.5, *[1.0] * 12]
    assert factors[13:] == [0.8125, 0.625, 0.4375, 0.25, 0.25]


@pytest.mark.slow
def test_a_sweep_trains_with_it_and_a_record_of_it_is_equal(folder: Path, command: Command) -> None:
    run = bs.sweep("trapezoid.yaml", results="runs", address="none")
    assert set(run.trials["schedule"]) == {"constant", "Trapezoid"}
    of_it = run.trials[run.trials["schedule"] == "Trapezoid"]
    assert len(of_it) == 8
    assert set(of_it["warmup_steps"]) == {3}
    assert set(of_it["end_factor"]) == {0.1}
    assert of_it["metaparameters"].str.contains("stable_steps").all()
    planned = command("sweep", "trapezoid.yaml", "--dry-run", "--results", "other").out
    assert "Trapezoid" in planned
    assert "trapezoid.py" not in planned

    trial = of_it["trial"].iloc[0]
    assert bs.rerun(trial, results="runs", trust=True).equal
    answer = command("trial", "--from", trial, "--results", "runs", "--trust")
    assert answer.status == 0, answer.err
    assert answer.out.splitlines()[-1].endswith(": equal")

    again = bs.sweep("trapezoid.yaml", results="runs", address="none")
    assert again.summary is not None
    assert again.summary.trained == 0
    named = TEXT.replace("trapezoid.py:Trapezoid", "trapezoid.py:Trapezoid as late").replace(
        "  Trapezoid:", "  late:"
    )
    (folder / "trapezoid.yaml").write_text(named)
    again = bs.sweep("trapezoid.yaml", results="runs", address="none")
    assert again.summary is not None
    assert again.summary.trained == 0
    assert set(again.trials["schedule"]) == {"constant", "late"}


@pytest.mark.usefixtures("folder")
def test_a_trial_trains_with_it(command: Command) -> None:
    given = ["--batch-size", 64, "--budget", "20 steps", "--param", "learning_rate=0.1"]
    whole = ["--param", "stable=0.5", "--param", "decay=0.25"]
    base = ("trial", "digits-softmax", "--schedule", "trapezoid.py:Trapezoid", *given)
    assert command(*base, *whole).status == 0
    lacking = command(*base, "--param", "stable=0.5")
    assert lacking.status == 1
    assert "needs a value of decay" in lacking.err
    run = bs.trial(
        "digits-softmax", schedule="trapezoid.py:Trapezoid", batch_size=64, budget="20 steps",
        learning_rate=0.1, stable=0.5, decay=0.25,
    )  # fmt: skip
    assert run.metaparameters["stable_steps"] == 10
    assert run.metaparameters["end_factor"] == 0.0


def test_a_class_stands_for_its_file(folder: Path) -> None:
    kind = type(schedules.get("trapezoid.py:Trapezoid", str(folder)))
    run = bs.trial(
        "digits-softmax", schedule=kind, batch_size=64, budget="5 steps",
        learning_rate=0.1, stable=0.5, decay=0.25,
    )  # fmt: skip
    assert run.study.schedule == "trapezoid.py:Trapezoid"
    packaged = type(schedules.get("cosine"))
    run = bs.trial(
        "digits-softmax", schedule=packaged, batch_size=64, budget="5 steps",
        learning_rate=0.1, decay=1,
    )  # fmt: skip
    assert run.study.schedule == "cosine"


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_its_file_goes_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ExecutorContext] = []
    real = InProcess.pool

    def pool(self: InProcess, *arguments: Any) -> Any:
        seen.append(self.context)
        return real(self, *arguments)

    monkeypatch.setattr(InProcess, "pool", pool)
    bs.sweep("trapezoid.yaml", results="runs", address="none", overrides=["trials=1"])
    assert set(seen[0].specs) == {"trapezoid.py:Trapezoid"}
