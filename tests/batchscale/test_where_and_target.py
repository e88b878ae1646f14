"""A condition and another target together: what the condition leaves out is not asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from results.store import Store
from tests.batchscale.conftest import Command
from tests.batchscale.test_bad_input import clear


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two workloads that measured different things, and trained on."""
    store = Store(tmp_path / "two")
    for workload, metric in (("images", "validation_error"), ("words", "validation_perplexity")):
        for size in (8, 16, 32, 64):
            group = {"workload": workload, "batch_size": size, "study": f"{workload}-{size}"}
            trial = {**group, "trial": f"{workload}-{size}", "role": "search", "index": 0}
            ended = {"status": "COMPLETE", "stop_reason": "budget", "steps_run": 256}
            points = [
                {"trial": trial["trial"], "step": step, "metrics": {metric: 8 / (step * size)}}
                for step in (1, 2, 4, 8, 16, 32, 64)
            ]
            store.add_studies([{"experiment": workload, **group}])
            store.commit(workload, measurements=points, trials=[{**trial, **ended}])
    return tmp_path / "two"


def test_a_target_of_one_workload(command: Command, two: Path) -> None:
    target = ["--target", "validation_error < 0.1"]
    clear(
        command("regimes", two, *target),
        "4 of 8 trials have no measurement of validation_error",
        hint="--where",
    )
    where = "workload = 'images' AND experiment <> 'targets'"
    answer = command("regimes", two, *target, "--where", where, "--json")
    assert answer.status == 0, answer.err
    (curve,) = json.loads(answer.out)
    assert curve["batch_sizes"] == [8, 16, 32, 64]


def test_a_condition_on_what_the_target_changes(command: Command, two: Path) -> None:
    asked = ["--target", "validation_perplexity < 0.05", "--where", "steps_to_target < 30"]
    answer = command("regimes", two, *asked, "--json")
    clear(answer, "4 of 8 trials have no measurement of validation_perplexity", hint="--where")
