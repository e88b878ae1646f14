"""Trials of several machines: the parts of a program meet, and end together.

Here a machine is a worker of Ray, and all are this one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import batchscale as bs
from experiments.config.compile import load
from experiments.execution.sweep import sweep
from experiments.programs.nodes import Meeting
from results.run_state import processes

TRAIN = """
import argparse, json, os, sys, time
import torch
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int)
parser.add_argument("--lr", type=float)
parser.add_argument("--budget", type=int)
parser.add_argument("--folder")
parser.add_argument("--fail", default="")
given = parser.parse_args()
os.environ.setdefault("RANK", os.environ["NODE_RANK"])
os.environ.setdefault("WORLD_SIZE", os.environ["NNODES"])
dist.init_process_group("gloo")
with open(f"{os.path.dirname(given.folder)}/pids-{dist.get_rank()}", "a") as stream:
    stream.write(f"{os.getpid()}\\n")
weight = 1.0
for step in range(1, given.budget + 1):
    gradient = torch.tensor(weight * given.batch_size / dist.get_world_size())
    dist.all_reduce(gradient)
    weight -= given.lr * float(gradient) / 64
    if step == 20 and dist.get_rank() == 1 and given.fail:
        sys.exit("the second part has failed")
    if step % 5 == 0 and dist.get_rank() == 0:
        print(json.dumps({"step": step, "val_loss": weight**2}), flush=True)
"""
FILE: dict[str, Any] = {
    "name": "parts",
    "program": "python train.py --batch_size={batch_size} --lr={learning_rate} --budget={budget} "
    "--folder={folder}",
    "grid": {"batch_size": [16, 32]},
    "points": [{"learning_rate": 0.5}, {"learning_rate": 0.01}],
    "target": "val_loss < 0.01",
    "budget": "60 steps",
    "nodes": 2,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def trials(root: str) -> pd.DataFrame:
    columns = ["trial", "status", "stop_reason", "steps_to_target", "last_miss"]
    return bs.open(root).trials.sort_values("trial")[columns].reset_index(drop=True)


def pids(folder: Path) -> list[int]:
    return [int(n) for f in folder.glob("*/programs/pids-*") for n in f.read_text().split()]


def test_what_a_part_is_told() -> None:
    told = Meeting(address="10.0.0.7", port=2000, nodes=3, devices=8).environment(2)
    assert told["MASTER_ADDR"] == told["PET_MASTER_ADDR"] == "10.0.0.7"
    assert told["MASTER_PORT"] == told["PET_MASTER_PORT"] == "2000"
    assert told["NNODES"] == told["PET_NNODES"] == "3"
    assert told["NODE_RANK"] == told["PET_NODE_RANK"] == "2"
    assert told["PET_NPROC_PER_NODE"] == "8"


@pytest.mark.ray
@pytest.mark.slow
def test_two_parts_have_the_rows_of_one_and_end_together(folder: Path, ray_address: str) -> None:
    sweep(load({**FILE, "keep": "off"}), results="two", address=ray_address)
    assert len(pids(folder)) == 8
    assert not any(processes.alive(processes.identify(pid)) for pid in pids(folder))
    sweep(load({**FILE, "keep": "off", "nodes": 1}), results="one", address="none")
    pd.testing.assert_frame_equal(trials("two"), trials("one"))
    assert set(trials("two")["stop_reason"]) == {"target", "budget"}
    parts = sorted(path.name for path in (folder / "two" / "programs").glob("*.node1"))
    assert '"step": 5' in bs.logs(trials("two")["trial"][0], "two")
    assert parts == [f"{trial}.node1" for trial in trials("two")["trial"]]


@pytest.mark.ray
@pytest.mark.slow
def test_a_part_that_fails_ends_the_others(folder: Path, ray_address: str) -> None:
    of = {**FILE, "program": f"{FILE['program']} --fail=yes", "points": [{"learning_rate": 0.01}]}
    with pytest.raises(bs.ExperimentError):
        sweep(load(of), results="two", address=ray_address)
    assert pids(folder)
    assert not any(processes.alive(processes.identify(pid)) for pid in pids(folder))
    errors = bs.open("two").trials["error"].dropna()
    assert any("the second part has failed" in error for error in errors)


@pytest.mark.ray
@pytest.mark.slow
def test_torchrun_is_told_by_its_environment(folder: Path, ray_address: str) -> None:
    torchrun = str(FILE["program"]).replace(
        "python train.py", "python -m torch.distributed.run train.py"
    )
    of = {
        **FILE,
        "program": torchrun,
        "grid": {"batch_size": 32},
        "points": [{"learning_rate": 0.5}],
    }
    (folder / "parts.yaml").write_text(json.dumps(of))
    sweep(load(folder / "parts.yaml"), results="two", address=ray_address)
    assert list(trials("two")["stop_reason"]) == ["target"]
    assert {path.name for path in (folder / "two" / "programs").glob("pids-*")} == {
        "pids-0",
        "pids-1",
    }
