"""The sweep that fault tests disturb, the same sweep undisturbed, and their comparison row by row.

Two studies of a hundred trials each, without Ray: some seconds. Every event is a line of its log.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

import batchscale as bs
import results as dataset
from results.run_state.claims import Claims
from results.storage.compact import compact
from results.storage.location import Location
from tests.experiments import sweeping
from tests.forked import SERVER

TRIALS = 200
PATIENCE = 900.0
"""Seconds that anything may take on a machine that does other things too: no test is of speed."""
_COLUMNS = ["study", "batch_size", "status", "stop_reason", "steps_to_target", "last_miss"]


class Sweep:
    """A sweep in a process and a process group of its own."""

    def __init__(
        self, root: Path, *, address: str = "none", kind: str = "many", **environment: str
    ) -> None:
        self.root = root
        self.log = root.with_suffix(f".{time.monotonic_ns()}.log")
        self.log.touch()
        given = {name: os.environ[name] for name in sweeping.GIVEN if name in os.environ}
        self.process = SERVER.Process(
            target=sweeping.alone,
            args=(str(root), address, kind, str(self.log), {**given, **environment}),
        )
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid
        return self.process.pid

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self.log.read_text()

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until something is so while it runs."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.is_alive(), self.text
            assert time.monotonic() < end, self.text
            time.sleep(0.02)

    def kill(self) -> None:
        """End it alone; what it started is left."""
        self.process.kill()
        self.process.join()

    def kill_group(self) -> None:
        """End it and all that it started in its group, if it runs."""
        if self.process.is_alive():
            os.killpg(self.pid, signal.SIGKILL)
            self.process.join()

    def status(self) -> int | None:
        """Wait for its end; its exit status."""
        self.process.join(PATIENCE)
        return self.process.exitcode

    def end(self, status: int = 0) -> str:
        """Wait for its end, with this exit status; what it printed."""
        code = self.status()
        assert code == status, (code, self.text)
        return self.text


def undisturbed(root: Path, kind: str = "many") -> pd.DataFrame:
    """The rows of the sweep that nothing disturbs, by trial."""
    sweeping.main(str(root), "none", kind)
    return rows(root)


def rows(root: Path) -> pd.DataFrame:
    """The latest row of each trial, by trial."""
    return dataset.open(root).trials.set_index("trial").sort_index()[_COLUMNS]


def recorded(root: Path) -> int:
    """Rows in all files of the trials table, superseded ones too; each file has to be whole."""
    return sum(pq.read_metadata(file).num_rows for file in (root / "trials").rglob("*.parquet"))


def assert_undisturbed(
    root: Path, whole: pd.DataFrame, failed: dict[str, str] | None = None
) -> None:
    """After a complete sweep: no row is lost or doubled, no file is half written or left over, the
    minima are equal, and trials that failed are there with their error.

    Args:
        whole: the undisturbed rows.
        failed: a part of the error of each trial that failed, by id.
    """
    failed = failed or {}
    trained, others = rows(root), ~whole.index.isin(list(failed))
    assert list(trained.index) == list(whole.index)
    pd.testing.assert_frame_equal(trained[others], whole[others])
    assert recorded(root) == len(whole)
    errors = dataset.open(root).trials.set_index("trial")["error"]
    for trial, text in failed.items():
        assert trained.loc[trial, "stop_reason"] == "error"
        assert text in errors[trial], errors[trial]
    assert errors.drop(list(failed)).isna().all()
    measured = dataset.open(root).measurements
    assert not measured.duplicated(["trial", "step"]).any()
    minima, wanted = (t[others].groupby("study").steps_to_target.min() for t in (trained, whole))
    pd.testing.assert_series_equal(minima, wanted)
    assert Claims(root).all() == []
    left = [file for file in root.rglob("*") if file.suffix in (".snapshot", ".trial")]
    assert left == [], left
    # What a killed process was writing stays until nobody can be writing it any more. (A snapshot's
    # stays for the next sweep of its study.)
    for file in root.rglob(".*.tmp"):
        os.utime(file, (1, 1))
    compact(Location(root))
    left = [file for file in root.rglob("*.tmp") if file.parent.name != "checkpoints"]
    assert left == [], left
    assert bs.fsck(root).defects == []


def claims_of_workers(sweep: Sweep) -> list[dict[str, Any]]:
    """The claims that are held by other processes than the driver."""
    return [c for c in Claims(sweep.root).live() if c["holder"]["pid"] != sweep.pid]
