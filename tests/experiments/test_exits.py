"""Code of a trial that ends the process in which a sweep without Ray trains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.user_models import LINEAR

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MODEL = f"""\
import ctypes, os
{LINEAR}
    def loss(self, output, batch):
        exec(os.environ.get("ENDS", ""))
        return super().loss(output, batch)
"""
EXPERIMENT = """\
workload: mine.py:Mine
grid: {batch_size: 32, optimizer: sgd}
search: {learning_rate: {log: [0.1, 1]}}
trials: 2
budget: 4 steps
engine: module
"""


def sweep(folder: Path, ends: str) -> tuple[int, str]:
    """The exit status and the standard error of a sweep whose loss does this."""
    (folder / "mine.py").write_text(MODEL)
    (folder / "mine.yaml").write_text(EXPERIMENT)
    done = subprocess.run(
        [sys.executable, "-m", "batchscale", "sweep", "mine.yaml", "--address", "none"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "ENDS": ends, "BATCHSCALE_RESULTS": "runs"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("ends", "status", "says"),
    [
        ("os._exit(0)", 1, "os._exit(0), in sgd, batch size 32\nhint: with --address auto"),
        ("os._exit(7)", 7, "error: the code of a trial ended this process: os._exit(7)"),
        ("ctypes.string_at(0)", -11, "Fatal Python error: Segmentation fault"),
        ("os.fork() or os._exit(0)", 0, None),
        ("ctypes.CDLL(None)._exit(0)", 0, None),
    ],
)
def test_the_end_is_said(tmp_path: Path, ends: str, status: int, says: str | None) -> None:
    """At once where this can be, and else by the next run."""
    code, err = sweep(tmp_path, ends)
    assert code == status, err
    assert (says or "") in err
    assert ("ended this process" in err) == ("_exit" in (says or ""))
    code, err = sweep(tmp_path, "")
    assert code == 0, err
    line = "an earlier run did not say here how it ended while it trained"
    assert (line in err) == ("fork" not in ends)
