"""Sweeps of 200 trials on a Ray cluster of which a part is killed, against an undisturbed one.

The nodes of the cluster are raylets on this machine, each with an address of the loopback network
and in a process group of its own.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from results.run_state.claims import Claims
from tests.experiments.undisturbed import (
    PATIENCE,
    TRIALS,
    Sweep,
    assert_undisturbed,
    claims_of_workers,
    recorded,
)

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address"),
]

ROOT = Path(__file__).parents[2]


class Node:
    """A node of one CPU: ``ray start`` with all that it starts, in a process group."""

    def __init__(self, folder: Path, number: int, port: int, **environment: str) -> None:
        self.ip, self.log = f"127.0.0.{number}", folder / f"node-{number}.log"
        head = number == 1
        where = ["--head", f"--port={port}"] if head else [f"--address=127.0.0.1:{port}"]
        only = [f"--temp-dir={folder}", "--include-dashboard=false", "--no-monitor"]
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1"),
            *(*where, *(only if head else [])),
            f"--node-ip-address={self.ip}",
            "--object-store-memory=80000000",
            "--disable-usage-stats",
        ]
        given = {
            "PYTHONPATH": str(ROOT),
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_timeout_ms": "5000",
            **environment,
        }
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **given},
                cwd=folder,
            )
        until = time.monotonic() + PATIENCE
        while b"started" not in self.log.read_bytes():
            assert self.process.poll() is None, self.log.read_text(errors="replace")
            assert time.monotonic() < until
            time.sleep(0.1)

    def kill(self) -> None:
        """As where its machine loses its power: its connections are closed."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def freeze(self) -> None:
        """As where the network loses its machine: nothing answers, and no connection is closed."""
        for pid in self.pids(""):
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """As where the machine is back, and does not know that it was given up."""
        for pid in self.pids(""):
            os.kill(pid, signal.SIGCONT)

    def pids(self, name: str) -> list[int]:
        """Its processes whose command has this part."""
        pids = []
        for each in Path("/proc").glob("[0-9]*"):
            try:
                command = (each / "cmdline").read_bytes()
                # Ray gives each worker a process group of its own.
                session = os.getsid(int(each.name))
            except (OSError, ProcessLookupError):
                continue
            if name.encode() in command and session == self.process.pid:
                pids.append(int(each.name))
        return pids


class Cluster:
    """A head, and nodes that come and go."""

    def __init__(self, folder: Path, **environment: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.folder, self.environment = folder, environment
        self.nodes: list[Node] = []
        self.add()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self) -> Node:
        """Another node; the first one is the head."""
        number = len(self.nodes) + 1
        self.nodes.append(Node(self.folder, number, self.port, **self.environment))
        return self.nodes[-1]

    def end(self) -> None:
        for node in reversed(self.nodes):
            if node.process.poll() is None:
                node.kill()


@pytest.fixture
def cluster() -> Iterator[Callable[..., Cluster]]:
    started: list[Cluster] = []
    with tempfile.TemporaryDirectory(prefix="f-", dir="/tmp", ignore_cleanup_errors=True) as folder:

        def start(**environment: str) -> Cluster:
            started.append(Cluster(Path(folder), **environment))
            return started[-1]

        yield start
        for each in started:
            each.end()


def nodes_of(claims: list[dict[str, Any]]) -> set[str]:
    return {str(claim["info"].get("node")) for claim in claims}


def trained_on(sweep: Sweep, seen: set[str], count: int) -> bool:
    """Whether workers on so many nodes have held claims by now."""
    seen |= nodes_of(claims_of_workers(sweep))
    return len(seen) >= count


def last_step(sweep: Sweep) -> int:
    """The step that a pack has reported last; 0 before."""
    reported = re.findall(r"^Progress\(.* step=(\d+)", sweep.text, re.MULTILINE)
    return int(reported[-1]) if reported else 0


@pytest.mark.parametrize("returns", [False, True])
def test_a_node_lost_and_another_added(
    returns: bool,
    cluster: Callable[..., Cluster],
    start: Callable[..., Sweep],
    whole: pd.DataFrame,
    tmp_path: Path,
) -> None:
    """The pack of the lost node goes on elsewhere, from its snapshot; the new node gets packs. A
    worker that comes back changes nothing."""
    gate = tmp_path / "gate"
    gate.touch()
    ray = cluster(FAKE_SECONDS="0.05", FAKE_GATE=str(gate))
    doomed = ray.add()
    sweep = start(address=ray.address, FAKE_HANG="300")
    seen: set[str] = set()
    sweep.until(lambda: last_step(sweep) >= 20)  # then a second pack may start
    gate.unlink()
    sweep.until(partial(trained_on, sweep, seen, 2))
    gate.touch()
    sweep.until(lambda: list(sweep.root.rglob("*.snapshot")))
    gate.unlink()
    sweep.until(lambda: len(nodes_of(claims_of_workers(sweep))) == 2)
    # Each claim names the process that trains, not the one that writes for it.
    workers = {c["holder"]["pid"] for c in claims_of_workers(sweep)}
    assert workers <= {pid for node in ray.nodes for pid in node.pids("ray::")}
    (lost,) = workers.intersection(doomed.pids("ray::"))
    (doomed.freeze if returns else doomed.kill)()
    ray.add()
    sweep.until(partial(trained_on, sweep, seen, 3))
    if returns:
        sweep.until(lambda: "trained on by another worker" in sweep.text)
        assert lost not in {c["holder"]["pid"] for c in claims_of_workers(sweep)}
        doomed.thaw()
        doomed.process.wait(PATIENCE)  # Ray ends a node that it has given up
    gate.touch()
    text = sweep.end()
    assert "left=0)" in text
    assert "trained on by another worker" in text
    assert "Traceback" not in text
    assert len(text.splitlines()[-1]) < 2000
    assert_undisturbed(sweep.root, whole)


def test_a_worker_that_gets_sigterm_saves_its_pack_first(
    cluster: Callable[..., Cluster], start: Callable[..., Sweep], whole: pd.DataFrame
) -> None:
    """SIGTERM, as where a spot machine is taken back."""
    ray = cluster(FAKE_SECONDS="0.05")
    sweep = start(address=ray.address)
    sweep.until(lambda: claims_of_workers(sweep))
    sweep.until(lambda: "Progress(" in sweep.text)
    (claim, *_) = claims_of_workers(sweep)
    os.kill(claim["holder"]["pid"], signal.SIGTERM)
    text = sweep.end()
    assert "asked to end (SIGTERM)" in text
    began = re.findall(r"^Begun\(pack='(\w+)'.* step=(\d+)", text, re.MULTILINE)
    assert any(pack == claim["pack"] and int(step) > 0 for pack, step in began), text
    assert_undisturbed(sweep.root, whole)


def test_the_head_killed_and_restarted(
    cluster: Callable[..., Cluster], start: Callable[..., Sweep], whole: pd.DataFrame
) -> None:
    ray = cluster(FAKE_SECONDS="0.05")
    sweep = start(address=ray.address)
    sweep.until(lambda: list(sweep.root.rglob("*.snapshot")) and recorded(sweep.root))
    (gcs,) = ray.nodes[0].pids("gcs_server")
    os.kill(gcs, signal.SIGKILL)
    text = sweep.end(1)
    error, hint = text.splitlines()[-2:]
    assert error == f"error: the head of the Ray at {ray.address} does not answer any more"
    assert hint.startswith("hint: what was committed is safe; start the cluster, then give")
    printed = [line for line in text.splitlines() if not re.match(r"\w+\(", line)]
    assert printed == [error, hint]  # no text of Ray's
    assert recorded(sweep.root) < TRIALS
    ray.end()
    for claim in Claims(sweep.root).all():
        assert claim["free"] or claim["silent"] < 120
    restarted = cluster()
    rest = start(address=restarted.address)
    assert "left=0)" in rest.end()
    assert_undisturbed(sweep.root, whole)


@pytest.mark.parametrize("actor", ["ray::Mailbox", "ray::Writer"])
def test_an_actor_beside_the_driver_killed(
    actor: str, cluster: Callable[..., Cluster], start: Callable[..., Sweep], whole: pd.DataFrame
) -> None:
    """No trial is at fault: packs go on from their snapshots, and what is counted is recorded."""
    ray = cluster(FAKE_SECONDS="0.05")
    ray.add()
    sweep = start(address=ray.address)
    sweep.until(lambda: list(sweep.root.rglob("*.snapshot")) and recorded(sweep.root))
    (pid,) = (pid for node in ray.nodes for pid in node.pids(actor))
    os.kill(pid, signal.SIGKILL)
    text = sweep.end()
    assert "a process of batchscale beside the driver" in text
    assert "left=0)" in text
    assert f"trials={recorded(sweep.root)}" in text.splitlines()[-1]
    assert "failed=0" in text.splitlines()[-1]
    assert "Traceback" not in text
    assert_undisturbed(sweep.root, whole)


@pytest.fixture
def culprits(tmp_path: Path, whole: pd.DataFrame) -> tuple[Path, list[str]]:
    """The file of the trials that a fault strikes, one of each study, and the trials."""
    trained = whole[whole.stop_reason == "target"]
    ids = [str(study.index[20]) for _, study in trained.groupby("study")]
    file = tmp_path / "culprits"
    file.write_text("\n".join(ids))
    return file, ids


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("dies", "the worker process was killed"),
        ("stays-in-c", "hung: no progress for"),
        ("keeps-the-lock", "hung: no progress for"),
    ],
)
def test_trials_that_take_their_worker_along(
    cluster: Callable[..., Cluster],
    start: Callable[..., Sweep],
    whole: pd.DataFrame,
    culprits: tuple[Path, list[str]],
    fault: str,
    error: str,
) -> None:
    """A pack is bisected, and one trial of each study fails."""
    file, ids = culprits
    ray = cluster(FAKE_CULPRITS=str(file))
    given = {"FAKE_FAULT": fault, "FAKE_CULPRITS": str(file), "FAKE_HANG": "4"}
    sweep = start(address=ray.address, **given)
    text = sweep.end(3)
    assert "failed=2" in text.splitlines()[-1]
    assert "left=0)" in text.splitlines()[-1]
    assert_undisturbed(sweep.root, whole, dict.fromkeys(ids, error))
    if fault == "dies":
        # Each in the last round's pack, of 2 ** 6 trials at the most.
        deaths = Path(f"{file}.deaths").read_text().split()
        assert len(deaths) <= 2 * (1 + 6)
