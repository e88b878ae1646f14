"""A Ray that a sweep starts: its workers, its end, and what an error does to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.execution.ray import start
from results.run_state.processes import MARK
from tests.batchscale.blocks import ROOT

WORKLOAD = """\
import json, os
from pathlib import Path
import torch
from batchscale import Classification

class Mine(Classification):
    target = "validation_error < 0.3"

    def data(self):
        size = int(Path("size.txt").read_text())  # in the current folder
        with Path(os.environ["FACTS"]).open("a") as file:
            facts = {"pid": os.getpid(), "nice": os.nice(0), "threads": torch.get_num_threads()}
            file.write(json.dumps({**facts, "arenas": os.getenv("MALLOC_ARENA_MAX")}) + "\\n")
        x = torch.randn(size, 4, generator=torch.Generator().manual_seed(0))
        return {split: (x, (x[:, 0] > 0).long()) for split in ("train", "validation")}

    def model(self):
        return torch.nn.Linear(4, 2)
"""
EXPERIMENT = """\
workload: mine.py
files: [size.txt]
grid: {batch_size: 16, optimizer: sgd}
search: {learning_rate: {log: [0.1, 1]}}
trials: 2
budget: 20 steps
"""
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
"""127.0.0.1, the same in IPv6, and ::1 (words in the machine's order)."""
TWO = """
import time, warnings
from experiments.execution.ray.start import LocalRay

began = time.monotonic()
try:
    with LocalRay(num_cpus=1):
        raise ValueError("in the experiment")
except ValueError:
    at_once = time.monotonic() - began
import ray
everything = ("ignore", None, Warning, None, 0)
first = LocalRay(num_cpus=1)  # waits for the end of the one before
while not first.decided:
    assert everything not in warnings.filters  # they are the whole process's
    time.sleep(0.01)
first.wait()
assert first.ours
assert ray.is_initialized()
first.end()
assert not ray.is_initialized()
print("threads", at_once < 1)
"""
ONE = """
from experiments.execution.ray.start import LocalRay
ray = LocalRay(num_cpus=1)
ray.wait()
print("up", flush=True)
input()
"""


def program(*words: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    """``python WORDS…`` in a folder, with this tree."""
    return subprocess.Popen(
        [sys.executable, "-P", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.ray
@pytest.mark.slow
def test_its_workers(tmp_path: Path) -> None:
    """They are as urgent as the driver, stand among the experiment's files, and take no module of
    the current folder for one of ours."""
    for name in ("workloads", "results", "analysis", "ray", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not ours')")
    files = {"mine.py": WORKLOAD, "mine.yaml": EXPERIMENT, "size.txt": "64"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    facts = tmp_path / "facts"
    sweep = ("-m", "batchscale", "sweep", "mine.yaml", "--results", str(tmp_path / "runs"))
    process = program(*sweep, folder=tmp_path, FACTS=str(facts))
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    lines = [json.loads(line) for line in facts.read_text().splitlines()]
    (worker,) = [line for line in lines if line["pid"] != process.pid]
    assert worker["nice"] == os.nice(0)
    assert worker["threads"] == 1
    assert worker["arenas"] == "1"


@pytest.mark.ray
@pytest.mark.slow
def test_an_error_waits_for_no_ray_and_the_next_one_starts(tmp_path: Path) -> None:
    out, err = program("-c", TWO, folder=tmp_path).communicate(timeout=200)
    assert out.split() == ["threads", "True"], err


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not list sockets")
def test_it_listens_on_the_loopback_interface_alone(tmp_path: Path) -> None:
    """Ray binds every address of the machine unless it is told."""
    process = program("-c", ONE, folder=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    sockets = listening([process.pid, *marked(process.pid)])
    process.communicate("\n")
    assert len(sockets) >= 5  # the head, the raylet, its agents, the driver
    assert {each for each in sockets if each not in LOOPBACK} == set(), sockets


def test_what_its_workers_print_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """By variables that Ray reads; and the loopback setting is for this start alone."""
    seen: dict[str, Any] = {}
    for name in ("RAY_ROTATION_MAX_BYTES", "RAY_ROTATION_BACKUP_COUNT"):
        monkeypatch.delenv(name, raising=False)
    constants = SimpleNamespace(ENABLE_RAY_CLUSTER=True)

    def init(**_: Any) -> None:
        seen.update(os.environ, several=constants.ENABLE_RAY_CLUSTER)

    ray: Any = SimpleNamespace(
        init=init,
        job_config=SimpleNamespace(JobConfig=lambda **_: None),
        _private=SimpleNamespace(worker=SimpleNamespace(), ray_constants=constants),
    )
    start._start(ray, 1)
    kept = int(seen["RAY_ROTATION_MAX_BYTES"]) * (1 + int(seen["RAY_ROTATION_BACKUP_COUNT"]))
    assert kept == 32 * 2**20
    assert seen["several"] is False
    assert constants.ENABLE_RAY_CLUSTER is True
    assert "RAY_ROTATION_MAX_BYTES" not in os.environ


def listening(pids: list[int]) -> list[str]:
    """The addresses at which these processes listen, in hexadecimal as the kernel lists them."""
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path("/proc/net", name).read_text().splitlines()[1:]
    ]
    held = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                held.add(os.readlink(descriptor))
    listens = [row for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held]
    return [row[1].partition(":")[0] for row in listens]


@pytest.mark.ray
@pytest.mark.slow
def test_nothing_is_left_of_a_killed_driver(tmp_path: Path) -> None:
    process = program("-c", ONE, folder=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert marked_by(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert wait_for_its_end(process.pid)


AGENTS = {"ray::DashboardAgent", "ray::RuntimeEnvAgent"}
"""They wait a minute for their raylet, and end."""


def wait_for_its_end(pid: int) -> bool:
    until = time.monotonic() + 60
    while not AGENTS.issuperset(marked_by(pid)) and time.monotonic() < until:
        time.sleep(0.1)
    return AGENTS.issuperset(marked_by(pid))


def marked_by(pid: int) -> list[str]:
    """What a process has started, and that, by their marks."""
    return [*marked(pid).values()]


def marked(pid: int) -> dict[int, str]:
    """The same by their ids."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            if any(
                v.startswith(f"{MARK}=".encode()) and f"/{pid}/".encode() in v for v in variables
            ):
                command = (folder / "cmdline").read_bytes().decode().strip("\0 ")
                found[int(folder.name)] = command
        except OSError:  # it has ended meanwhile
            continue
    return found
