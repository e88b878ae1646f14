"""``make cluster-demo``: a node is killed halfway, and the regimes stay the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.batchscale.blocks import ROOT

SMALL = ("--set", "trials=16", "--set", "grid.batch_size=[1, 8, 64, 512, 1024]")


def run(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )


@pytest.mark.ray
@pytest.mark.slow
def test_a_node_killed_halfway_changes_no_regime(tmp_path: Path) -> None:
    demo = str(ROOT / "docs" / "cluster" / "demo.py")
    sweep = ("-m", "batchscale", "sweep", "digits", *SMALL, "--address", "none")
    assert run(*sweep, "--results", "runs", folder=tmp_path).returncode == 0
    done = run(demo, "runs", *SMALL, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "one of the nodes is killed" in done.stdout
    assert done.stdout.splitlines()[-1] == "equal to the regimes of the undisturbed sweep"
