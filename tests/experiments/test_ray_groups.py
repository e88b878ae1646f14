"""Worker groups on Ray whose ranks die, hang or diverge: real processes, killed for real."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import results as dataset
from experiments.config.compile import load
from experiments.errors import ExperimentError
from experiments.execution.signals import Interrupted
from experiments.execution.sweep import Summary, sweep
from experiments.execution.worker import Pace
from experiments.scheduling.messages import Begun, Ended, Event, Note
from tests.batchscale.blocks import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.slow]

WORKLOAD = """
import os, time
from pathlib import Path
import torch
import torch.distributed as dist
from batchscale import Classification

def rank():
    return dist.get_rank() if dist.is_initialized() else 0

class Mine(Classification):
    target = "validation_error < 0.02"
    calls = 0

    def data(self):
        if dist.is_initialized():
            Path({folder!r}, f"rank-{{rank()}}-{{os.getpid()}}").touch()
        x = torch.randn(256, 8, generator=torch.Generator().manual_seed(0))
        return {{split: (x, (x[:, :3].sum(1) > 0).long()) for split in ("train", "validation")}}

    def model(self):
        return torch.nn.Linear(8, 2)

    def loss(self, output, batch):
        type(self).calls += 1
        losses = super().loss(output, batch)
        {body}
        return losses
"""
PACE = Pace(commit=0.2, snapshot=0.2, collective=120.0)
RESULTS = ["trial", "status", "steps_to_target", "last_miss", "steps_run", "world_size"]


def write(folder: Path, body: str = "pass", **keys: Any) -> Path:
    """An experiment of groups of two, with lines in the workload's loss."""
    folder.mkdir(exist_ok=True)
    (folder / "mine.py").write_text(WORKLOAD.format(folder=str(folder), body=body))
    given = {"trials": 1, "batch_size": 32, "budget": "40 steps", "engine": "module", **keys}
    size = given.pop("batch_size")
    file = folder / "mine.yaml"
    file.write_text(
        f"workload: mine.py:Mine\nworkers: 2\ngrid: {{batch_size: {size}, optimizer: [sgd]}}\n"
        "search: {learning_rate: {log: [0.01, 3]}}\nevaluation_ratio: 1.3\n"
        + "".join(f"{key}: {value}\n" for key, value in given.items())
    )
    return file


def run(file: Path, address: str, observer: Callable[[Event], None], **how: Any) -> Summary:
    pace = how.pop("pace", PACE)
    root = file.parent / "runs"
    return sweep(load(file), results=root, address=address, observer=observer, pace=pace, **how)


def rows(file: Path) -> pd.DataFrame:
    return dataset.open(file.parent / "runs").trials.sort_values("trial").reset_index(drop=True)


def processes(title: str) -> list[int]:
    """The processes of this test run's Ray with such a title. Its token is in their environment."""
    token = f"RAY_AUTH_TOKEN={os.environ['RAY_AUTH_TOKEN']}".encode()
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            named = (folder / "cmdline").read_bytes().startswith(title.encode())
            if named and token in (folder / "environ").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
    return pids


@pytest.fixture(autouse=True)
def nothing_is_left(ray_address: str) -> Iterator[None]:
    """After each sweep there is no rank and no placement group."""
    yield
    import ray
    from ray.util import placement_group_table

    ray.init(address=ray_address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        until = time.monotonic() + 60
        while True:
            kept = [g for g in placement_group_table().values() if g["state"] != "REMOVED"]
            left = processes("ray::RankProcess")
            if not kept and not left:
                return
            assert time.monotonic() < until, (kept, left)
            time.sleep(0.2)
    finally:
        ray.shutdown()


def test_twenty_killed_ranks_change_no_row(tmp_path: Path, ray_address: str) -> None:
    many: dict[str, Any] = {
        "trials": 104,
        "batch_size": [16, 64],
        "budget": "60 steps",
        "engine": "stacked",
    }
    file = write(tmp_path / "many", keep="off", **many)
    run(file, ray_address, lambda _: None, pack_size=16)
    quiet = (file.parent / "runs").rename(tmp_path / "quiet")
    kills, in_a_row, trains, notes = 0, 0, False, []

    def observe(event: Event) -> None:
        """Kill rank 0 as the pack begins, then rank 1 as trials have ended, which rank 0 commits:
        three deaths without progress would end the pack."""
        nonlocal kills, in_a_row, trains
        if isinstance(event, Note):
            notes.append(event.text)
        ended = isinstance(event, Ended) and event.run is None
        if not ended and not isinstance(event, Begun):
            return
        in_a_row = 0 if ended else in_a_row
        trains = trains or not ended
        if trains and kills < 20 and in_a_row < 1:
            files = file.parent.glob(f"rank-{int(ended)}-*")
            newest = max(files, key=lambda each: each.stat().st_mtime_ns)
            with suppress(ProcessLookupError):
                os.kill(int(newest.name.split("-")[2]), signal.SIGKILL)
                kills, in_a_row, trains = kills + 1, in_a_row + 1, False

    did = run(file, ray_address, observe, pack_size=16)
    assert kills == 20
    assert did.complete
    assert did.failed == 0
    assert sum("died: it goes on from its last snapshot" in note for note in notes) >= 15
    assert not any("loo" in note or "failed" in note for note in notes)  # Gloo
    roots = quiet, file.parent / "runs"
    first, second = (
        dataset.open(root).trials.sort_values("trial").reset_index(drop=True) for root in roots
    )
    assert len(second) == second.trial.nunique() >= 200
    assert first[RESULTS].equals(second[RESULTS])
    keys = ["trial", "step", "validation_error", "validation_cross_entropy"]
    curves = [
        dataset.open(root).measurements.sort_values(["trial", "step"])[keys].reset_index(drop=True)
        for root in roots
    ]
    assert curves[0].equals(curves[1])  # bit for bit


def test_the_claim_of_a_rank_0_elsewhere_is_released_at_its_death(
    tmp_path: Path, ray_address: str
) -> None:
    """Nobody can see that its process is gone: not after two minutes, but as Ray says so."""
    file = write(tmp_path / "away", trials=8, budget="60 steps")
    killed: list[float] = []
    begun: list[float] = []

    def observe(event: Event) -> None:
        if isinstance(event, Begun):
            begun.append(time.monotonic())
        if isinstance(event, Begun) and not killed:
            (claim,) = (file.parent / "runs" / "claims").glob("*.json")
            content = json.loads(claim.read_text())
            os.kill(content["holder"]["pid"], signal.SIGKILL)
            killed.append(time.monotonic())
            content["holder"]["machine"] = "another"
            claim.write_text(json.dumps(content))

    assert run(file, ray_address, observe).complete
    assert begun[1] - killed[0] < 60  # of 120
    assert (rows(file)["stop_reason"] != "error").all()
    assert rows(file).trial.nunique() == len(rows(file)) == 8


def test_a_killed_tune_actor_is_followed_by_another(tmp_path: Path, ray_address: str) -> None:
    file = write(tmp_path / "tune", trials=16, budget="60 steps")
    killed: list[int] = []

    def observe(event: Event) -> None:
        if isinstance(event, Begun) and not killed:
            killed.extend(processes("ray::train_group") or processes("ray::ImplicitFunc"))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    assert run(file, ray_address, observe).complete
    assert killed
    assert (rows(file)["stop_reason"] != "error").all()
    assert rows(file).trial.nunique() == len(rows(file)) == 16


def test_a_pack_that_kills_its_ranks_ends(tmp_path: Path, ray_address: str) -> None:
    file = write(tmp_path / "loop", "os.kill(os.getpid(), 9) if rank() == 1 else None")
    notes: list[str] = []
    with pytest.raises(ExperimentError) as caught:
        run(file, ray_address, lambda e: notes.append(e.text) if isinstance(e, Note) else None)
    message = "rank 1 of 2: the worker process was killed (signal 9)"
    assert str(caught.value).startswith(message)
    assert "three times over" in str(caught.value)
    assert sum("rank 1 of 2 died: it goes on from its last snapshot" in n for n in notes) == 2


def test_a_rank_that_hangs(tmp_path: Path, ray_address: str) -> None:
    body = "time.sleep(3600 if rank() == 1 and type(self).calls > 3 else 0)"
    file = write(tmp_path / "hang", body)
    pace = Pace(commit=0.2, snapshot=0.2, collective=15.0)
    with pytest.raises(ExperimentError) as caught:
        run(file, ray_address, lambda _: None, pace=pace)
    assert str(caught.value) == "rank 1 of 2 hung: the others waited 15 s for it"
    (row,) = rows(file).to_dict("records")
    assert row["stop_reason"] == "error"
    assert "rank 1 of 2 hung" in row["error"]


@pytest.mark.parametrize("body", ["time.sleep(0.01)", "time.sleep(3600 * rank())"])
def test_an_interruption(tmp_path: Path, ray_address: str, body: str) -> None:
    """Of a group that trains, and of one that hangs: rank 0 waits for rank 1."""
    file = write(tmp_path / "stop", body, trials=8, budget="200 steps")
    asked: list[Event] = []

    def observe(event: Event) -> None:
        if isinstance(event, Begun | Note) and not asked:
            asked.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run(file, ray_address, observe, pace=Pace(collective=3600.0))


def test_groups_of_two_drivers_on_three_cores(
    tmp_path: Path, start_ray: Callable[[int], AbstractContextManager[str]]
) -> None:
    """Neither holds a core while it waits for another."""
    files = [write(tmp_path / name, trials=4) for name in ("first", "second")]
    with start_ray(3) as address:
        drivers = [
            subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "batchscale", "sweep", str(file)),
                    *("--address", address, "--results", str(file.parent / "runs")),
                ],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for file in files
        ]
        try:
            printed = [driver.communicate(timeout=900)[0] for driver in drivers]
        finally:
            for driver in drivers:
                driver.kill()
    assert [driver.returncode for driver in drivers] == [0, 0], printed
    assert [len(rows(file)) for file in files] == [4, 4]


def test_a_loss_that_is_nan_on_rank_1(tmp_path: Path, ray_address: str) -> None:
    body = "losses = losses * (float('nan') if rank() == 1 and type(self).calls > 12 else 1)"
    file = write(tmp_path / "nan", body, trials=2, target='"validation_error < 0.0"')
    with suppress(ExperimentError):  # that no trial has reached the target
        run(file, ray_address, lambda _: None)
    assert set(rows(file)["status"]) == {"INFEASIBLE"}
    assert set(rows(file)["stop_reason"]) == {"diverged"}
