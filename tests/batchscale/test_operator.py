"""What an operator meets who leaves a sweep alone on a shared folder, and what is typed then: time
that is over, a disk that is full, a folder that is moved away, a terminal that closes, a lock that
another process holds, and somebody else's record. At the end the rows are those of a sweep that met
none of it. Without Ray, by the command line alone."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import batchscale as bs
from results.run_state.claims import Claims
from tests.batchscale.blocks import ROOT
from tests.batchscale.people import Person, end, wait

pytestmark = pytest.mark.slow

EXPERIMENT = """\
workload: digits-softmax
grid: {batch_size: [64, 128, 256], optimizer: sgd}
search: {learning_rate: {log: [0.05, 1]}}
trials: 6
budget: 1500 steps
target: validation_error < 0.05
keep: off
engine: module
"""
SWEEP = ("sweep", "alone.yaml", "--address", "none", "--results", "runs")
COLUMNS = ["trial", "status", "stop_reason", "steps_run", "steps_to_target", "last_miss"]


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path, ROOT)
    person.write({"alone.yaml": EXPERIMENT})
    yield person
    for process in person.started:
        if process.poll() is None:
            process.kill()
            process.wait()


def rows(root: Path) -> pd.DataFrame:
    return bs.open(root).trials.sort_values("trial")[COLUMNS].reset_index(drop=True)


def training(operator: Person) -> subprocess.Popen[str]:
    """A sweep that trains a pack by now."""
    process = operator.begin(*SWEEP)
    claims = Claims(operator.folder / "runs")
    wait(process, lambda: any(c["holder"]["pid"] == process.pid for c in claims.live()))
    return process


def test_left_alone_on_shared_storage(operator: Person) -> None:
    root = operator.folder / "runs"

    # Its time is over: a status of its own, and the same number as ``status``.
    said = operator.fail(*SWEEP, "--for", "1s", status=4)
    assert f"not complete, {operator.left()} trials left" in said

    # The disk is full: no file above 4 KiB can be written.
    full = 'ulimit -f 4; exec "$0" -m batchscale "$@"'
    done = subprocess.run(
        ["bash", "-c", full, sys.executable, *SWEEP],
        cwd=operator.folder, env=operator.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "error: cannot write " in done.stderr
    assert "Traceback" not in done.stderr

    # The folder is moved away, and put back as the hint says.
    process = training(operator)
    moved = root.rename(root.with_name("moved"))
    _, err = process.communicate(timeout=400)
    assert process.returncode == 1, err
    assert "is gone: moved, deleted, or its mount is lost" in err
    assert not root.exists()
    moved.rename(root)
    assert "hint: put it back (move it, mount it), then" in err
    if kept := re.search(r"then: (cp -r (\S+)/\. \S+); and give the same command again", err):
        subprocess.run(kept[1], shell=True, check=True)  # what had ended since the last commit
        shutil.rmtree(kept[2])

    # The terminal closes: no claim is left.
    status, err = end(training(operator), signal.SIGHUP)
    assert status == 130, err
    assert "give the same command again to continue" in err
    assert "Traceback" not in err
    assert Claims(root).all() == []
    assert "this folder was away" in err
    assert operator.left() > 0

    # Another process holds the lock of the claims: it is named, and waited for.
    log = operator.folder / "log"
    with Claims(root).locked(), log.open("w") as stream:
        process = operator.begin(*SWEEP, stderr=stream)
        wait(process, lambda: f"process {os.getpid()} on " in log.read_text())
        assert "waiting for the lock" in log.read_text()
    process.communicate(timeout=400)
    assert process.returncode == 0, log.read_text()
    assert operator.left() == 0

    # Nothing is lost, trained twice, or counted twice by a plain reader.
    operator.run(*("whole" if word == "runs" else word for word in SWEEP))
    whole = rows(operator.folder / "whole")
    pd.testing.assert_frame_equal(rows(root), whole)
    assert list(operator.folder.glob("runs/trials/*/*.parquet"))
    assert len(operator.rows()) == len(whole)
    assert operator.run("fsck", "runs").endswith("no defect\n")
