"""Callbacks of other libraries report to a sweep, which ends their programs at the target."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import batchscale as bs
from batchscale.reporting import REPORTS, STOP

EXAMPLES = Path(__file__).parents[2] / "examples" / "programs"
ARGUMENTS = {
    "trainer": [
        *("--output_dir=out", "--per_device_train_batch_size=16", "--learning_rate=0.01"),
        *("--max_steps=200", "--eval_strategy=steps", "--eval_steps=10", "--save_strategy=no"),
        *("--report_to=none", "--logging_steps=5"),
    ],
    "lightning_module": ["--batch_size=32", "--lr=0.5", "--max_steps=200"],
}
LIBRARIES = {"trainer": "transformers", "lightning_module": "lightning"}
METRICS = {"trainer": {"loss", "eval_loss"}, "lightning_module": {"val_error"}}
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("name", [*ARGUMENTS])]


@pytest.fixture(autouse=True)
def _library(name: str) -> None:
    pytest.importorskip(LIBRARIES[name])


def test_it_reports_and_ends_when_it_is_to_stop(name: str, tmp_path: Path) -> None:
    reports = tmp_path / "reports.jsonl"
    (tmp_path / "stop").touch()
    path = os.pathsep.join([str(EXAMPLES.parents[1]), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *ARGUMENTS[name]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, REPORTS: str(reports), STOP: str(tmp_path / "stop")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    said = [json.loads(line) for line in reports.read_text().splitlines()]
    assert said[0]["step"] == 5
    assert {each["step"] for each in said} <= {5, 10}
    assert any(METRICS[name] & {*each} for each in said)


def test_a_sweep_of_its_example_ends_at_the_target(name: str, tmp_path: Path) -> None:
    file = EXAMPLES / f"{name}.yaml"
    assert len(file.read_text().splitlines()) < 10
    rate = {"trainer": 0.01, "lightning_module": 0.5}[name]
    overrides = ["grid.batch_size=[16]", "trials=1", f"search.learning_rate={rate}"]
    run = bs.sweep(
        file, overrides=overrides, results=tmp_path, address="none", observer=lambda _: None
    )
    (row,) = run.trials.to_dict("records")
    assert (row["status"], row["stop_reason"]) == ("COMPLETE", "target")
    assert 0 < row["steps_to_target"] - row["last_miss"] <= 10
