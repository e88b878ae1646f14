"""``batchscale trial``: techniques, the weights that it saves, and the layout of a recorded one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

import batchscale as bs
import workloads
from results.storage.dataset import encode
from tests.batchscale.conftest import Command
from tests.experiments.user_layouts import LAYOUTS
from workloads.base import Workload

GIVEN = ("digits-softmax", "--batch-size", "64", "--param", "learning_rate=0.5")
SWEPT: Any = {"workload": "digits-softmax", "batch_size": 64, "optimizer": "sgd", "trials": 1}
SWEPT |= {"address": "none"}
SHORT = ("--budget", "40 steps", "--target", "validation_error < 0.01")


def test_techniques_are_given_by_name_with_their_arguments(command: Command) -> None:
    plain = json.loads(command("trial", *GIVEN, *SHORT, "--json").out)
    both = ("--technique", "clip=0.01", "--technique", "ema={decay: 0.5}")
    answer = command("trial", *GIVEN, *SHORT, *both, "--json")
    assert answer.status == 0, answer.err
    run = bs.trial(
        "digits-softmax", batch_size=64, learning_rate=0.5, budget="40 steps",
        target="validation_error < 0.01", technique={"clip": 0.01, "ema": 0.5},
    )  # fmt: skip
    assert {"clip", "ema"} <= set(run.study.technique)
    rows = json.loads(answer.out)
    column = "validation_cross_entropy"
    assert [row[column] for row in rows] == run.measurements[column].tolist()
    assert [row[column] for row in rows] != [row[column] for row in plain]


def validation_error(workload: Workload, weights: dict[str, torch.Tensor]) -> float:
    """The error of these weights, computed without the engines."""
    model = workload.model()
    model.load_state_dict(weights)
    model.eval()
    inputs, labels = (torch.as_tensor(part) for part in workload.data()["validation"])  # type: ignore[union-attr]
    with torch.no_grad():
        output = workload.forward(model, workload.transform((inputs, labels), training=False))
    return float((output.argmax(1) != labels).double().mean())


@pytest.mark.parametrize("engine", ["module", "stacked"])
def test_the_saved_weights_are_those_that_are_measured(tmp_path: Path, engine: str) -> None:
    of: dict[str, object] = {"batch_size": 64, "learning_rate": 0.05, "budget": "40 steps"}
    file = tmp_path / "model.safetensors"
    run = bs.trial("digits-softmax", technique={"ema": 0.98}, engine=engine, save=file, **of)  # type: ignore[arg-type]
    saved = load_file(file)
    workload = workloads.load("digits-softmax")
    assert validation_error(workload, saved) == run.evaluations[-1].metrics["validation_error"]
    trained = bs.trial("digits-softmax", engine=engine, **of).weights  # type: ignore[arg-type]
    assert saved.keys() == trained.keys()  # training does not see the average
    assert any(not torch.allclose(saved[name], trained[name], atol=1e-3) for name in saved)


def test_a_recorded_trial_keeps_its_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(LAYOUTS)
    given: Any = {"target": "validation_error < 0.01", "layout": "mine.py:Gathered"}
    swept = bs.sweep(learning_rate=0.1, budget="9 steps", results="runs", **SWEPT, **given)
    again = bs.rerun(swept.trials["trial"].iloc[0], results="runs", trust=True)
    assert again.equal
    assert again.study.layout.name == "mine.py:Gathered"


def test_a_trial_whose_target_was_made_easier_is_trained_beyond_it(tmp_path: Path) -> None:
    given: Any = {"learning_rate": 0.3, "budget": "99 steps", "results": tmp_path}
    for target in ("validation_error < 0.1", "validation_error < 0.2"):
        swept = bs.sweep(target=target, **SWEPT, **given)
    again = bs.rerun(swept.trials["trial"].iloc[0], results=tmp_path)
    assert again.equal
    assert again.outcome.steps_to_target < again.outcome.steps_run  # type: ignore[operator]


def test_a_mean_over_a_part_is_not_compared_with_its_record(small: Path, tmp_path: Path) -> None:
    """Another target of then may have ended its evaluation elsewhere."""
    root = Path(shutil.copytree(small, tmp_path / "runs"))
    file = next((root / "measurements").rglob("*.parquet"))
    rows = pq.read_table(file)
    trial = rows["trial"][0].as_py()

    def changed(**cells: object) -> bool:
        columns = dict(rows.to_pydict())
        for name, cell in cells.items():
            columns[name] = [cell, *columns[name][1:]]
        file.write_bytes(encode(pa.table(columns, schema=rows.schema)))
        return bs.rerun(trial, results=root).equal

    assert not changed(validation_error=0.123)
    part = {"evaluated_examples": 100, "interval_low": 0.0, "interval_high": 1.0}
    assert changed(validation_error=0.123, interval_metric="validation_error", **part)
