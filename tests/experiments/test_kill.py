"""A sweep with a Ray of its own that is killed in the middle: the same command does the rest."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import results as dataset
from results.run_state import processes
from results.run_state.claims import Claims
from tests.experiments import sweeping
from tests.experiments.undisturbed import Sweep, claims_of_workers, recorded

pytestmark = pytest.mark.slow


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Sweep]]:
    """Starts sweeps, and ends by process group what a failing test leaves."""
    started: list[Sweep] = []

    def start(name: str, address: str = "none", kind: str = "real") -> Sweep:
        started.append(Sweep(tmp_path / name, address=address, kind=kind))
        return started[-1]

    yield start
    for one in started:
        one.kill_group()


def table(root: Path) -> pd.DataFrame:
    columns = ["trial", "status", "steps_to_target", "last_miss", "steps_run"]
    return dataset.open(root).trials.sort_values("trial")[columns].reset_index(drop=True)


def snapshots(root: Path) -> list[Path]:
    return list((root / "checkpoints").glob("*.snapshot"))


def says(one: Sweep, text: str) -> bool:
    return text in one.log.read_text()


def early(one: Sweep, rows: int) -> bool:
    """Whether more is recorded than ``rows`` and a pack has most of its 2500 steps before it:
    one that ends while a signal is on its way leaves no snapshot."""
    steps = re.findall(r"^Progress\(.* step=(\d+)", one.log.read_text(), re.MULTILINE)
    grown = recorded(one.root) > rows and bool(snapshots(one.root))
    return grown and bool(steps) and int(steps[-1]) < 1000


def taken_by_another(claim: dict[str, Any], root: Path) -> bool:
    """Whether another process trains what this claim was about, in this pack or in parts of it."""
    return any(
        set(live["trials"]) & set(claim["trials"])
        and live["holder"]["pid"] != claim["holder"]["pid"]
        for live in Claims(root).live()
    )


def is_whole(root: Path, other: Path) -> None:
    found = table(root)
    assert found.equals(table(other))
    assert recorded(root) == len(found)  # nothing twice
    assert snapshots(root) == []
    assert Claims(root).all() == []


def claimed(root: Path) -> list[dict[str, Any]]:
    """The processes of a sweep that its claims name."""
    return [p for claim in Claims(root).all() for p in (claim["holder"], *claim["processes"])]


@pytest.mark.ray
def test_kills_and_interrupts_with_a_ray_of_its_own(
    start: Callable[..., Sweep], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeping.main(str(tmp_path / "whole"), "none", "real")
    monkeypatch.setenv("REAL_SECONDS", "0.05")
    one = start("runs", "auto", "real")
    one.until(lambda: len(claimed(one.root)) >= 4)  # a worker, the driver, and Ray's own
    left = claimed(one.root)
    for process in left:
        if process.get("role") != "driver":  # each shows by whom it was started
            environment = Path(f"/proc/{process['pid']}/environ").read_bytes()
            assert f"{processes.MARK}=".encode() in environment
    one.kill()

    two = start("runs", "auto", "real")  # within the second
    two.until(partial(says, two, "Begun("))
    assert not any(processes.alive(process) for process in left)
    before = recorded(two.root)
    two.until(lambda: claims_of_workers(two))  # no longer the driver, which trains while Ray starts
    (claim, *_) = claims_of_workers(two)
    os.kill(claim["holder"]["pid"], signal.SIGKILL)  # a worker alone: Tune starts another
    two.until(partial(taken_by_another, claim, two.root))
    two.until(partial(early, two, before))
    os.killpg(two.pid, signal.SIGINT)  # as a terminal's Ctrl-C: Ray's processes too
    assert two.status() == 130
    assert "Summary(" in two.log.read_text()
    assert recorded(two.root) < len(table(tmp_path / "whole"))
    assert snapshots(two.root)

    monkeypatch.delenv("REAL_SECONDS")
    start("runs", "none", "real").end()
    is_whole(two.root, tmp_path / "whole")
