"""Sweeps of programs: planned, trained, recorded, and continued after an interruption."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import batchscale as bs
from batchscale.output.errors import CommandError
from experiments.config.compile import load
from experiments.errors import ExperimentError
from experiments.execution.sweep import sweep
from experiments.scheduling.messages import Event, Note
from results.run_state import processes
from tests.experiments.programs.scripted import HEAD

QUADRATIC = """
import argparse
parser = argparse.ArgumentParser()
for name, kind in (("batch", int), ("lr", float), ("steps", int), ("seed", int), ("out", str)):
    parser.add_argument("--" + name, type=kind)
parser.add_argument("--optimizer", default="sgd")
parser.add_argument("--resume", action="store_true")
given = parser.parse_args()
folder = given.out or "."
saved = os.path.join(folder, "checkpoint.json")
step, w = json.load(open(saved)) if given.resume else (0, 1.0)
factor = {"sgd": 1.0, "fast": 2.0}[given.optimizer]
while step < given.steps:
    step += 1
    w -= given.lr * factor * min(1, given.batch / 16) * w
    if step % 5 == 0:
        loss = w * w if abs(w) < 1e100 else float("nan")
        say(step, val_loss=loss, lr=given.lr)
        if given.out:
            with open(os.path.join(folder, "log.jsonl"), "a") as stream:
                print(json.dumps({"step": step, "val_loss": loss}), file=stream)
            with open(saved + ".tmp", "w") as stream:
                json.dump([step, w], stream)
            os.replace(stream.name, saved)
        time.sleep(float(os.environ.get("PAUSE", "0")))
"""
FILE = {
    "name": "quadratic",
    "program": "python train.py --batch={batch_size} --lr={learning_rate} --steps={budget}",
    "grid": {"batch_size": "4..16"},
    "search": {"learning_rate": {"log": [0.01, 1.0]}},
    "target": "val_loss < 0.01",
    "trials": 3,
    "budget": "200 steps",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(HEAD + QUADRATIC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(**changes: object) -> tuple[pd.DataFrame, list[Event]]:
    """The rows of a sweep of ``FILE`` into the folder ``runs``, and what was said."""
    events: list[Event] = []
    sweep(load({**FILE, **changes}), results="runs", address="none", observer=events.append)
    return bs.open("runs").trials, events


def exact(lr: Any, batch: Any, factor: float = 1.0) -> float:
    """Steps to target of the quadratic, at evaluations every 5 steps."""
    w = 1.0
    for step in range(1, 201):
        w -= lr * factor * min(1, batch / 16) * w
        if step % 5 == 0 and w * w < 0.01:
            return step
    return float("nan")


def expected_of(rows: pd.DataFrame) -> list[float]:
    return [exact(row.learning_rate, row.batch_size) for row in rows.itertuples()]


def test_a_sweep_of_a_program(folder: Path) -> None:
    rows, _ = trained()
    assert len(rows) == 9
    expected = expected_of(rows)
    reached = rows["stop_reason"] == "target"
    assert reached.sum() >= 6
    assert rows["steps_to_target"][reached].tolist() == pd.Series(expected)[reached].tolist()
    assert set(rows["stop_reason"]) <= {"target", "budget", "dominated"}
    assert (rows["steps_to_target"] - rows["last_miss"])[reached].eq(5).all()
    facts = ["workload", "optimizer", "schedule", "engine", "precision", "evaluation_ratio"]
    (row,) = rows[facts].drop_duplicates().itertuples(index=False)
    assert (*row[:4],) == ("train.py", "program", "in-program", "program")
    assert pd.isna(row[4])
    assert pd.isna(row[5])
    measured = bs.open("runs").measurements
    assert "val_loss" in json.loads(measured["metrics"].iloc[0])
    again, _ = trained()
    assert len(again) == 9
    assert (folder / "runs" / "programs").is_dir()
    curve = bs.regimes("runs")
    assert "program" in str(curve)


@pytest.mark.usefixtures("folder")
def test_factors_and_dominated_trials() -> None:
    command = f"{FILE['program']} --optimizer={{optimizer}}"
    grid = {"batch_size": [8], "optimizer": ["sgd", "fast"]}
    rows, _ = trained(program=command, grid=grid, trials=8, keep=1)
    assert len(rows) == 16
    for name, factor in (("sgd", 1.0), ("fast", 2.0)):
        of = rows[rows["optimizer"] == name]
        least = min(exact(lr, 8, factor) for lr in of["learning_rate"])
        assert of["steps_to_target"].min() == least
        dominated = of[of["stop_reason"] == "dominated"]
        assert (dominated["steps_run"] >= least).all()
    assert (rows["stop_reason"] == "dominated").any()


@pytest.mark.usefixtures("folder")
def test_a_divergence_is_infeasible() -> None:
    rows, _ = trained(
        search={"learning_rate": {"discrete": [0.1, 300.0]}}, grid={"batch_size": 16}, trials=2
    )
    by_rate = {row.learning_rate: row for row in rows.itertuples()}
    assert by_rate[300.0].status == "INFEASIBLE"
    assert by_rate[0.1].stop_reason == "target"


def test_a_program_that_fails_is_a_row_with_its_last_words(folder: Path) -> None:
    code = "if given.batch == 8: sys.exit('the loss scale is zero')\n"
    source = (folder / "train.py").read_text()
    (folder / "train.py").write_text(source.replace("folder = given", f"{code}folder = given"))
    rows, events = trained()
    failed = rows[rows["stop_reason"] == "error"]
    assert len(rows) == 9
    assert failed["batch_size"].tolist() == [8, 8, 8]
    for error in failed["error"]:
        first, *_, last = error.splitlines()
        assert first == "the loss scale is zero"
        end = "exit status 1: the loss scale is zero"
        assert last == f"train.py ended before its first report: {end}"
    (note,) = (e.text for e in events if isinstance(e, Note) and "the same again" in e.text)
    line = note.removeprefix("the same again: ").split()
    again = subprocess.run(line, capture_output=True, check=False, text=True)
    assert (again.returncode, again.stderr) == (1, "the loss scale is zero\n")
    with pytest.raises(CommandError, match="is of a program") as error:
        bs.rerun(failed["trial"].iloc[0], results="runs")
    assert str(error.value.hint).endswith("/command.sh")


FUNCTION = """
import os

import helper


def train(config, report):
    assert sorted(config) == ["batch_size", "budget", "folder", "learning_rate", "name", "seed"]
    assert config["name"] == "1" and os.path.isdir(config["folder"])
    w = 1.0
    for step in range(1, config["budget"] + 1):
        w = helper.moved(w, config["learning_rate"], config["batch_size"])
        if step % 5 == 0 and report(step=step, val_loss=w * w):
            return
"""


def test_a_function_is_swept_as_its_program_is(folder: Path) -> None:
    (folder / "walk.py").write_text(FUNCTION)
    moved = "def moved(w, lr, size):\n    return w - lr * min(1, size / 16) * w\n"
    (folder / "helper.py").write_text(moved)
    of = {**FILE, "grid": {**FILE["grid"], "name": ["1"]}, "keep": "off"}  # type: ignore[dict-item]
    del of["program"]
    of["workload"] = "walk.py:train"
    sweep(load(of), results="runs", address="none")
    rows = bs.open("runs").trials
    assert rows["steps_to_target"].tolist() == pytest.approx(expected_of(rows), nan_ok=True)
    assert set(rows["workload"]) == {"walk.py:train"}
    before = [study.id for study in load(of).studies()]
    (folder / "helper.py").write_text(moved + "\nx = 1\n")
    assert not {*before} & {study.id for study in load(of).studies()}
    assert load(yaml.safe_load(load(of).to_yaml())).studies()[0].id == load(of).studies()[0].id
    del of["workload"]
    with pytest.raises(ExperimentError, match=r"walk\.py defines no workload") as error:
        load({**of, "workload": "walk.py:tain"})
    assert error.value.hint == "did you mean 'train'?"


def test_its_output_is_printed(folder: Path) -> None:
    trained()
    (trial, *_) = sorted(path.name for path in (folder / "runs" / "programs").iterdir())
    printed = bs.logs(trial[:8], "runs").splitlines()
    assert json.loads(printed[0])["step"] == 5
    assert bs.logs(trial, "runs", stderr=True) == ""
    with pytest.raises(CommandError, match="no trial of a program begins with 'zz'"):
        bs.logs("zz", "runs")
    with pytest.raises(CommandError, match="9 trials of programs begin with ''"):
        bs.logs("", "runs")


def test_identity_is_the_program_and_its_parameters(folder: Path) -> None:
    def ids(**changes: object) -> list[str]:
        return [t.id for study in load({**FILE, **changes}).studies() for t in study.draw(0, 2)]

    first = ids()
    base = f"{FILE['program']}"
    same: list[dict[str, object]] = [{"devices": 4}, {"keep": "off"}, {"trials": 5}]
    assert all(ids(**change) == first for change in same)
    (folder / "train.py").write_text("# a comment\n" + (folder / "train.py").read_text())
    assert ids() == first
    assert not {*ids(program=f"{base} --wd=0.1")} & {*first}
    # A program that knows its budget may decay towards it; one that does not cannot.
    assert not {*ids(budget="300 steps")} & {*first}
    without = base.replace("{budget}", "1000")
    assert ids(program=without, budget="300 steps") == ids(program=without)
    (folder / "config.json").write_text("{}")
    with_file = ids(files=["config.json"])
    (folder / "config.json").write_text("{ }")
    assert len({*first, *with_file, *ids(files=["config.json"])}) == 3 * len(first)
    (folder / "train.py").write_text((folder / "train.py").read_text() + "\nx = 1\n")
    assert not {*ids()} & {*first}


def test_a_changed_program_is_asked_about(folder: Path) -> None:
    trained()
    (folder / "train.py").write_text((folder / "train.py").read_text() + "\nx = 1\n")
    with pytest.raises(ExperimentError, match=r"^train.py has changed since 9 trials of 3 studies"):
        trained()
    sweep(load(FILE), results="runs", address="none", keep_old=True)
    assert len(bs.open("runs").trials) == 9


def test_a_plan_needs_no_run(folder: Path) -> None:
    (folder / "nano.yaml").write_text(json.dumps(FILE))
    sweep = ("-m", "batchscale", "sweep", "nano.yaml", "--dry-run", "--results", "runs")
    run = subprocess.run([sys.executable, *sweep], capture_output=True, text=True, check=True)
    assert "3 studies, 9 feasible trials wanted" in run.stdout
    assert "at most 1,800 steps, 16,800 examples, if every trial ran" in run.stdout
    assert not (folder / "runs").exists()


@pytest.mark.usefixtures("folder")
def test_a_trial_that_cannot_go_on_says_so() -> None:
    _, events = trained(trials=1)
    notes = [event.text for event in events if isinstance(event, Note)]
    assert any("the experiment has no resume: … for its program" in note for note in notes)


RESUMED = {
    **FILE,
    "program": f"{FILE['program']} --out={{folder}}",
    "resume": "--resume",
    "metrics": "{folder}/log.jsonl",
    "grid": {"batch_size": [4, 16]},
    "search": {"learning_rate": {"log": [0.02, 0.3]}},
    "keep": "off",
}


def driver(folder: Path) -> subprocess.Popen[str]:
    """A sweep of ``RESUMED`` in a process of its own."""
    code = f"""
    import json
    from experiments.config.compile import load
    from experiments.execution.sweep import sweep
    from experiments.programs import process
    process.GRACE_SECONDS = 0.5
    sweep(load(json.loads({json.dumps(RESUMED)!r})), results="runs", address="none")
    """
    root = str(Path(__file__).parents[3])
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        text=True,
        env={**os.environ, "PYTHONPATH": root, "PAUSE": "0.05"},
    )


def started(folder: Path) -> int:
    return sum(len(p.read_text().split()) for p in folder.glob("runs/programs/*/stdout.log"))


@pytest.mark.slow
def test_a_sweep_that_is_killed_twenty_times_goes_on(folder: Path) -> None:
    """A moment is a number of reports since its start: a slow machine meets the same ones."""
    draw = random.Random(0)
    kinds = [signal.SIGKILL] * 11 + [signal.SIGTERM, signal.SIGINT, signal.SIGHUP] * 3
    for number in draw.sample(kinds, 20):
        moment = started(folder) + draw.randrange(1, 10)
        with driver(folder) as run:
            while run.poll() is None and started(folder) < moment:
                time.sleep(0.02)
            assert run.poll() is None, "the sweep was complete before the last kill"
            run.send_signal(number)
    deadline = time.monotonic() + 60
    while (left := programs(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    rows, _ = trained(**RESUMED)
    assert len(rows) == 6
    assert rows["steps_to_target"].tolist() == pytest.approx(expected_of(rows), nan_ok=True)
    measured = bs.open("runs").measurements
    for row in rows.itertuples():
        steps = measured["step"][measured["trial"] == row.trial].tolist()
        assert steps[-1] == row.steps_run
        assert {*steps} <= {*range(5, steps[-1] + 1, 5)}


def programs(folder: Path) -> list[int]:
    """Processes of the programs that run in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            here = (entry / "cwd").resolve() == folder.resolve()
        except OSError:
            continue
        alive = processes.alive(processes.identify(int(entry.name)))
        if here and b"train.py" in words and alive:
            found.append(int(entry.name))
    return found
