"""``--track``: what other tools get of a sweep's trials, and that their failures stop nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import batchscale as bs
from batchscale.output.errors import CommandError
from batchscale.tracking import wandb_runs
from batchscale.tracking.observer import Tracking
from batchscale.tracking.tracker import tracker
from experiments.scheduling.messages import Ended, Event, Note, ignore
from results.errors import ResultsError
from results.storage.compact import compact
from results.storage.location import Location
from results.store import Store
from tests.batchscale.conftest import Command, snapshot
from tests.batchscale.fake_trackers import TOOLS, Runs, Seen
from tests.results import synthetic

EXPERIMENT = """\
name: tracked
workload: digits-softmax
grid: {batch_size: [64, 128], optimizer: [sgd]}
search: {learning_rate: {log: [0.1, 3]}}
trials: 2
budget: 60 steps
target: validation_error < 0.2
engine: module
"""


def row(index: int, **changes: Any) -> dict[str, Any]:
    return synthetic.trial_row("digits-mlp", "adam", 8, index) | changes


def early(index: int, steps: int) -> dict[str, Any]:
    """A trial that was stopped as dominated, and may go on."""
    return row(index, stop_reason="dominated", steps_run=steps, steps_to_target=None)


def track(folder: Path, spec: str, *commits: str) -> list[Event]:
    """Hand commits to a tracker, as a sweep does; the events that its observer got."""
    got: list[Event] = []
    with Tracking([spec], Location(folder), "synthetic", got.append) as observer:
        for run in commits:
            observer(Ended(pack="p", study="s", outcomes=()))  # it comes at once, without rows
            observer(Ended(pack="p", study="s", outcomes=(), run=run))
    return got


def notes(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Note)]


@pytest.fixture(params=TOOLS)
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Runs]:
    """A tool's name, and the runs that it has."""
    runs: Runs = {}
    for name, module in TOOLS[request.param](runs).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(wandb_runs, "_SECONDS", 0.0)
    return request.param, runs


def merged(seen: Seen) -> dict[int, dict[str, float]]:
    """The metrics by step; a value comes once."""
    by_step: dict[int, dict[str, float]] = {}
    for step, values in seen.history:
        known = by_step.setdefault(step, {})
        assert not known.keys() & values.keys()
        known |= values
    return by_step


def expected(trial: dict[str, Any]) -> dict[int, dict[str, float]]:
    return {
        point["step"]: {k.replace("_", "/", 1): v for k, v in point["metrics"].items()}
        for point in synthetic.measurement_rows(trial)
    }


def test_each_trial_is_a_run(tool: tuple[str, Runs], tmp_path: Path) -> None:
    name, runs = tool
    rows = [row(0), row(3), row(1, status="INCOMPLETE", stop_reason="error", steps_to_target=None)]
    run = synthetic.commit(Store(tmp_path), rows)
    assert notes(track(tmp_path, f"{name}:me/mine", run)) == []
    assert runs.keys() == {each["trial"] for each in rows}
    for each in rows:
        seen = runs[each["trial"]]
        wanted = {
            "study": each["study"], "trial": each["trial"], "seed": each["seed"],
            "target": synthetic.TARGET, "experiment": "synthetic", "workload": "digits-mlp",
            "optimizer": "adam", "schedule": "constant", "batch_size": 8, "role": "search",
            "width": 64, "learning_rate": each["learning_rate"],
        }  # fmt: skip
        if name == "mlflow":
            wanted = {key: str(value) for key, value in wanted.items()}
        if name == "wandb":
            wanted["status"] = each["status"]
        assert seen.config == wanted
        assert seen.name.startswith(f"synthetic/adam-b00008/00{each['index']}-")
        assert merged(seen) == expected(each)
        names = ("status", "stop_reason", "steps_run", "steps_to_target")
        assert seen.outcome == {n: each[n] for n in names if each[n] is not None}
        assert seen.failed == (each["stop_reason"] == "error")


def test_a_trial_that_goes_on_is_not_written_twice(tool: tuple[str, Runs], tmp_path: Path) -> None:
    name, runs = tool
    store = Store(tmp_path)
    lost = row(1, status="INCOMPLETE", stop_reason="error", steps_run=9, steps_to_target=None)
    first = synthetic.commit(store, [early(3, 8), row(0), row(2)])
    failed = store.commit("synthetic", measurements=[], trials=[lost])  # with its worker
    assert failed is not None
    track(tmp_path, f"{name}:me/mine", first, failed)
    assert merged(runs[early(3, 8)["trial"]]) == expected(early(3, 8))
    second = synthetic.commit(store, [row(3), row(1)])
    for _ in range(2):  # whatever comes again changes nothing
        assert notes(track(tmp_path, f"{name}:me/mine", second)) == []
        for index in range(4):
            seen = runs[row(index)["trial"]]
            assert merged(seen) == expected(row(index))
            assert seen.outcome["steps_run"] == row(index)["steps_run"]
            assert seen.outcome["stop_reason"] == row(index)["stop_reason"]
    harder = row(0, target_value=0.01, stop_reason="budget", steps_to_target=None)
    track(tmp_path, f"{name}:me/mine", synthetic.commit(store, [harder]))
    if name != "mlflow":  # which keeps the target that it had, too
        assert runs[harder["trial"]].outcome.get("steps_to_target") is None


def test_files_that_are_merged_meanwhile(tool: tuple[str, Runs], tmp_path: Path) -> None:
    name, runs = tool
    store = Store(tmp_path)
    commits = [synthetic.commit(store, rows) for rows in ([early(3, 8)], [row(0)], [row(3)])]
    compact(Location(tmp_path), idle=True)
    assert notes(track(tmp_path, f"{name}:me/mine", *commits)) == []
    assert merged(runs[row(0)["trial"]]) == expected(row(0))
    assert merged(runs[row(3)["trial"]]) == expected(row(3))
    assert runs[row(3)["trial"]].outcome["stop_reason"] == "budget"


def test_one_that_fails_stops_nothing_and_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = TOOLS["trackio"]({})["trackio"]
    monkeypatch.setattr(module, "init", lambda **_: (_ for _ in ()).throw(OSError("no disk")))
    monkeypatch.setitem(sys.modules, "trackio", module)
    store, got = Store(tmp_path / "runs"), list[Event]()
    specs = ["trackio:mine", f"tensorboard:{tmp_path / 'tb'}"]
    commits = [synthetic.commit(store, [row(index)]) for index in range(3)]
    with Tracking(specs, Location(tmp_path / "runs"), "synthetic", got.append) as observer:
        for run in commits:
            observer(Ended(pack="p", study="s", outcomes=(), run=run))
    text = "--track trackio:mine is off: OSError: no disk; the results folder has all trials"
    assert notes(got) == [text]
    assert len(list((tmp_path / "tb").glob("*/*/*/events.*"))) == 3
    assert sum(isinstance(event, Ended) for event in got) == 3


def test_one_that_cannot_be_opened_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def login() -> None:
        raise RuntimeError("no key")

    module = TOOLS["wandb"]({})["wandb"]
    monkeypatch.setattr(module, "login", login)
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    run = synthetic.commit(Store(tmp_path), [row(0)])
    (note,) = notes(track(tmp_path, "wandb:mine", run))
    assert "RuntimeError: no key" in note
    monkeypatch.setenv("WANDB_MODE", "offline")  # where it needs none
    tracker("wandb:mine")


def test_no_key_of_an_address_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in TOOLS["mlflow"]({}).items():
        monkeypatch.setitem(sys.modules, name, module)
    refused = lambda tracking_uri: (_ for _ in ()).throw(OSError(f"no {tracking_uri}"))  # noqa: E731
    monkeypatch.setattr(sys.modules["mlflow"], "MlflowClient", refused)
    (note,) = notes(track(tmp_path, "mlflow:https://me:sesame-77@host/x"))
    assert "host/x" in note
    assert "sesame" not in note


@pytest.mark.parametrize(
    ("spec", "says", "hint"),
    [
        ("wandb", "--track wandb is not TOOL:PLACE", "wandb:PROJECT, mlflow:URI"),
        ("mlflow:", "--track mlflow: is not TOOL:PLACE", "mlflow:URI"),
        ("wanbd:mine", "--track wanbd:mine is not TOOL:PLACE", "did you mean wandb?"),
        ("comet:mine", "--track comet:mine is not TOOL:PLACE", "trackio:PROJECT"),
        ("wandb:mine", "--track wandb:mine: wandb is not installed", "pip install wandb"),
        ("mlflow:x", "--track mlflow:x: mlflow is not installed", "pip install mlflow"),
        ("trackio:x", "--track trackio:x: trackio is not installed", "pip install trackio"),
    ],
)
def test_wrong_ones_are_one_line(
    spec: str, says: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in TOOLS:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CommandError) as error:
        tracker(spec)
    assert str(error.value) == says
    assert hint in (error.value.hint or "")


def test_a_folder_of_others_is_refused_before_anything_trains(here: Path) -> None:
    (here / "mine.txt").write_text("kept")
    with pytest.raises(ResultsError, match="holds files that no export"):
        bs.sweep("digits", track=f"tensorboard:{here}", results=here / "runs", observer=ignore)
    assert not (here / "runs").exists()


def test_a_sweep_goes_on_and_its_folder_is_that_of_an_export(command: Command, here: Path) -> None:
    (here / "tracked.yaml").write_text(EXPERIMENT)
    arguments = ("sweep", "tracked.yaml", "--address", "none", "--results", "runs")
    plain = command(*arguments, "--results", "untracked")
    first = command(*arguments, "--track", "tensorboard:tb", "--track", "tensorboard:tb")
    assert first.status == 0
    assert first.out.splitlines()[2:-2] == plain.out.splitlines()[2:-2]
    written = snapshot(here / "tb")
    assert len(list((here / "tb").glob("tracked/*/*/events.*"))) == 4
    more = bs.sweep(
        "tracked.yaml", overrides=["trials=3"], track=["tensorboard:tb"], results="runs",
        address="none", observer=ignore,
    )  # fmt: skip
    assert more.summary is not None
    assert more.summary.trained == 2
    after = snapshot(here / "tb")
    assert {name: after[name] for name in written} == written
    assert bs.export("tensorboard", "runs", output="tb").changed == 0
    assert len(list((here / "tb").glob("tracked/*/*/events.*"))) == len(more.trials) == 6
