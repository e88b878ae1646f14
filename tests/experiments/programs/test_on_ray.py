"""Programs on Ray: the rows of a sweep without it, in place or from a copy, and after a death."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

import batchscale as bs
from experiments.config.compile import load
from experiments.execution import staging
from experiments.execution.sweep import sweep
from experiments.plan import Study
from experiments.programs.process import RUNNING
from results.storage.location import Location
from tests.experiments.programs.test_sweeps import FILE, RESUMED
from tests.experiments.programs.test_sweeps import folder as folder  # a fixture
from tests.experiments.programs.test_sweeps import programs as running
from tests.results.conftest import bucket as bucket  # a fixture
from workloads.user_code.program import Program

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def table(root: str | Location) -> pd.DataFrame:
    columns = ["trial", "status", "stop_reason", "steps_to_target", "last_miss"]
    rows = bs.open(root).trials.sort_values("trial")
    return rows[columns].reset_index(drop=True)


def test_the_rows_are_those_without_ray(folder: Path, ray_address: str) -> None:
    of = {**FILE, "keep": "off"}
    sweep(load(of), results="alone", address="none")
    sweep(load(of), results="runs", address=ray_address)
    pd.testing.assert_frame_equal(table("runs"), table("alone"))
    ran = (folder / "runs" / "programs").glob("*/command.sh")
    assert {path.read_text().splitlines()[0] for path in ran} == {f"cd {folder}"}


def test_a_worker_that_dies_takes_its_program_along(folder: Path, ray_address: str) -> None:
    of = {**RESUMED, "program": f"env PAUSE=0.05 {RESUMED['program']}", "files": ["train.py"]}
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while not killed and time.monotonic() < deadline:
            time.sleep(0.1)
            for path in folder.glob(f"runs/programs/*/{RUNNING}"):
                if (path.parent / "log.jsonl").exists():
                    guard = json.loads(path.read_text())["pid"]
                    status = Path(f"/proc/{guard}/status").read_text()
                    killed.append(int(status.partition("PPid:")[2].split()[0]))
                    os.kill(killed[0], signal.SIGKILL)
                    break

    killer = threading.Thread(target=kill)
    killer.start()
    sweep(load(of), results="runs", address=ray_address)
    killer.join()
    assert killed
    assert not running(folder)
    sweep(load(of), results="alone", address="none")
    pd.testing.assert_frame_equal(table("runs"), table("alone"))


def test_where_the_folder_is_not_a_copy_is_run(folder: Path) -> None:
    (folder / "settings.json").write_text("{}")
    (folder / "helper.py").write_text("x = 1")
    train = (folder / "train.py").read_text()
    (folder / "train.py").write_text(f"import helper\n{train}")
    of = load({**FILE, "files": ["settings.json"]})
    (study, *_) = of.studies()
    program = of.spec
    assert isinstance(program, Program)
    with staging.staged(str(folder), [], of.files, program=program) as staged:
        assert _base(staged, study) == str(folder)
        names = {p.name for p in Path(staged.folder, "program").iterdir()}
        assert names == {"train.py", "helper.py", "settings.json"}
        (folder / "helper.py").write_text("x = 2")
        assert _base(staged, study) == f"{staged.folder}/program"


def test_files_above_and_absolute_ones_keep_their_places(folder: Path, ray_address: str) -> None:
    inner = folder / "experiments" / "first"
    inner.mkdir(parents=True)
    train = (folder / "train.py").read_text()
    command = str(FILE["program"]).replace("train.py", "../../train.py")
    of = {**FILE, "program": command, "keep": "off"}
    (inner / "mine.yaml").write_text(json.dumps(of))
    experiment = load(inner / "mine.yaml")
    (study, *_) = experiment.studies()
    program = experiment.spec
    assert isinstance(program, Program)
    with staging.staged(str(inner), [], experiment.files, program=program) as staged:
        assert staged.program == "program/experiments/first"
        assert _base(staged, study) == str(inner)
        (folder / "train.py").write_text(f"{train}# changed since\n")
        there = Path(str(_base(staged, study)))
        assert there == Path(staged.folder, "program", "experiments", "first")
        assert (there / "../../train.py").read_text() == train
    sweep(experiment, results="runs", address=ray_address)
    of_file = str(FILE["program"]).replace("train.py", str(folder / "train.py"))
    sweep(load({**FILE, "program": of_file, "keep": "off"}), results="runs2", address=ray_address)
    for name in ("runs", "runs2"):
        assert set(bs.open(name).trials["stop_reason"]) == {"target", "budget"}
    ran = (folder / "runs2" / "programs").glob("*/command.sh")
    assert {path.read_text().splitlines()[0] for path in ran} == {f"cd {folder}"}


def test_with_results_in_an_object_store_trials_have_a_folder_here(
    folder: Path, bucket: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    of = {**FILE, "keep": "off"}
    sweep(load(of), results=bucket, address="none")
    sweep(load(of), results="alone", address="none")
    pd.testing.assert_frame_equal(table(bucket), table("alone"))
    (made,) = (folder / "tmp").glob("batchscale-programs-*")
    assert len([*made.glob("*/command.sh")]) == 9


def _base(staged: staging.Staged, study: Study) -> str | None:
    return staged.localize(study).workload.base
