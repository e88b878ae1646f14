"""The simulated cluster in small: every pack is slept through once, and counted rightly."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import cluster, driver, light_workers
from benchmarks.cluster import Run


@pytest.mark.ray
@pytest.mark.slow
def test_eight_workers_that_sleep() -> None:
    # Long enough that the last worker of a busy machine begins while the others still have packs.
    run = cluster.measure(8, packs_each=2, seconds=10.0)
    assert run.complete
    assert (run.slots, run.packs, run.trials) == (8, 16, 8 * 32)
    assert 0 < run.busy <= 1
    assert run.private > 0
    assert run.full is not None
    assert run.lost == 0


def test_all_workers_have_a_pack_when_as_many_run_at_once() -> None:
    late = [(0.0, 10.0), (1.0, 11.0), (10.5, 20.5), (11.5, 21.5), (12.5, 22.5)]
    assert cluster.full_at(late, slots=2) == 1.0
    assert cluster.full_at(late, slots=3) == 12.5  # a third worker that began after a whole pack
    assert cluster.full_at(late[:2], slots=3) is None  # not "as many as ever"


def test_processes_that_never_reported_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "raylet.out"
    log.write_text(
        "[2026-11-25 07:27:50,532 E 1 1] (raylet) worker_pool.cc:660: Some workers of the worker "
        "process(29324) have not registered within the timeout. The process is dead, probably it "
        "crashed during start.\n[2026-11-25 07:27:51,235 I 1 1] Started worker process\n"
    )
    assert cluster.lost_workers(log) == 1
    run = Run(
        slots=16, seconds=60.0, packs=64, trials=2048, busy=0.99, first=7.2, full=65.4, lost=1,
        gap=0.1, driver=6.0, memory=32.0, private=24.0, available=900.0, complete=True,
    )  # fmt: skip
    assert cluster.until_full(run) == "65 s; the first after 7 s; 1 worker process did not start"
    assert cluster.until_full(replace(run, full=None, lost=0)) == "never; the first after 7 s"


@pytest.mark.slow
def test_the_server_that_forks_workers_has_one_thread() -> None:
    """Another one might hold a lock in the moment of a fork."""
    program = (
        "import importlib, os\n"
        f"for name in {light_workers.MODULES!r}: importlib.import_module(name)\n"
        "print(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **light_workers.SINGLE_THREAD},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1"]


def test_the_part_of_the_time_in_which_workers_are_busy() -> None:
    intervals = [(0.0, 10.0), (1.0, 11.0), (12.0, 22.0), (11.0, 21.0)]
    assert cluster.busy_share(intervals, slots=2, since=1.0, until=21.0) == pytest.approx(0.95)


def test_a_driver_in_small() -> None:
    run = driver.cost(240)
    assert run.trials == 240
    assert run.seconds > 0
