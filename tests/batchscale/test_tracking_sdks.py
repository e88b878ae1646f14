"""``--track`` with the real SDKs, offline, where they are installed; and that the fakes of
``fake_trackers`` have their parameters."""

from __future__ import annotations

import importlib
import inspect
import json
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from results.store import Store
from tests.batchscale.fake_trackers import TOOLS
from tests.batchscale.test_tracking import early, expected, notes, row, track
from tests.results import synthetic

CALLS = {
    "wandb": ("init", "login", "Settings", "Run.log", "Run.finish"),
    "mlflow": (
        *("MlflowClient.get_experiment_by_name", "MlflowClient.create_experiment"),
        *("MlflowClient.search_runs", "MlflowClient.get_run", "MlflowClient.get_metric_history"),
        *("MlflowClient.update_run", "MlflowClient.create_run", "MlflowClient.log_batch"),
        *("MlflowClient.set_tag", "MlflowClient.set_terminated", "MlflowClient"),
        *("entities.Metric", "entities.Param"),
    ),
    "trackio": ("init", "Run.log", "Run.finish"),
}
pytestmark = pytest.mark.filterwarnings("default")
"""Their warnings are theirs."""


def parameters(module: Any, name: str) -> list[str]:
    for part in name.split("."):
        module = getattr(module, part)
    return list(inspect.signature(module).parameters)


@pytest.mark.parametrize("tool", TOOLS)
def test_the_fakes_have_the_real_parameters(tool: str) -> None:
    real = pytest.importorskip(tool)
    fake = TOOLS[tool]({})[tool]
    if tool == "mlflow":
        importlib.import_module("mlflow.entities")
    for name in CALLS[tool]:
        if name == "Settings":  # a model of fields
            known = set(real.Settings.model_fields)
        else:
            known = set(parameters(real, name))
        if not name.startswith("Run."):
            assert known >= set(parameters(fake, name)), name
    if tool == "wandb":
        assert {"starting_step", "config"} <= set(dir(real.Run))


def commits(folder: Path) -> tuple[str, str]:
    """Of a trial that goes on: before and after."""
    store = Store(folder / "runs")
    first = synthetic.commit(store, [early(3, 8), row(0)])
    return first, synthetic.commit(store, [row(3)])


@pytest.mark.parametrize("kind", ["sqlite:///{}.db", "file:{}"])
def test_mlflow(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = kind.format(tmp_path / "mlflow")
    for run in commits(tmp_path):
        assert notes(track(tmp_path / "runs", f"mlflow:{uri}", run)) == []
    client = mlflow.MlflowClient(uri)
    found = client.search_runs([client.get_experiment_by_name("synthetic").experiment_id])
    by_trial = {run.data.tags["batchscale.trial"]: run for run in found}
    assert len(found) == len(by_trial) == 2
    run = by_trial[row(3)["trial"]]
    assert run.data.params["batch_size"] == "8"
    assert run.data.params["learning_rate"] == str(row(3)["learning_rate"])
    assert (run.data.tags["status"], run.info.status) == ("COMPLETE", "FINISHED")
    assert run.data.metrics["steps_run"] == row(3)["steps_run"]
    history = client.get_metric_history(run.info.run_id, "validation/error")
    wanted = [(step, values["validation/error"]) for step, values in expected(row(3)).items()]
    assert sorted((point.step, point.value) for point in history) == wanted


def records(log: bytes) -> Iterator[bytes]:
    """The records of a log as LevelDB has it: in blocks of 32 KiB, after W&B's seven bytes."""
    at, parts = 7, b""
    while at + 7 <= len(log):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", log, at)
        parts += log[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield parts
            parts = b""


def test_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    for run in commits(tmp_path):
        assert notes(track(tmp_path / "runs", "wandb:mine", run)) == []
    wandb.teardown()  # as at the end of a program: its process writes what is left
    read = {}
    for file in sorted((tmp_path / "wandb").glob("offline-run-*/run-*.wandb")):
        history: dict[int, dict[str, Any]] = {}
        config: dict[str, Any] = {}
        summary: dict[str, Any] = {}
        for record in map(Record.FromString, records(file.read_bytes())):
            if record.HasField("run"):
                trial = record.run.run_id
                config |= {i.key: json.loads(i.value_json) for i in record.run.config.update}
            items = {
                i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.history.item
            }
            if items:
                history[record.history.step.num] = items
            updates = record.summary.update
            summary |= {i.key or i.nested_key[0]: json.loads(i.value_json) for i in updates}
        read[trial] = history, config, summary
    assert read.keys() == {row(0)["trial"], row(3)["trial"]}
    for trial in (row(0), row(3)):  # the one that went on is whole in its later folder
        history, config, summary = read[trial["trial"]]
        assert (config["batch_size"], config["optimizer"]) == (8, "adam")
        assert summary["stop_reason"] == trial["stop_reason"]
        assert history.keys() == expected(trial).keys()
        for step, values in expected(trial).items():
            assert values.items() <= history[step].items()


def test_trackio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trackio = pytest.importorskip("trackio")
    for module in ("utils", "sqlite_storage"):  # it reads the variable when it is imported
        monkeypatch.setattr(f"trackio.{module}.TRACKIO_DIR", tmp_path / "trackio")
    for run in commits(tmp_path):
        assert notes(track(tmp_path / "runs", "trackio:mine", run)) == []
    assert capsys.readouterr().out == ""
    names = [run.name for run in trackio.Api().runs("mine")]
    assert len(names) == 2
    with sqlite3.connect(tmp_path / "trackio" / "mine.db") as base:
        rows = base.execute("SELECT run_name, step, metrics FROM metrics").fetchall()
    (name,) = (name for name in names if "/003-" in name)
    values = [(step, json.loads(text)) for run, step, text in rows if run == name]
    measured = {step: each for step, each in values if "status" not in each}
    assert measured == expected(row(3))
    ends = [each for _, each in values if "status" in each]
    assert [each["stop_reason"] for each in ends] == ["dominated", "budget"]
