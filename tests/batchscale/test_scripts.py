"""``python train.py``: a script that defines a workload and sweeps it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.batchscale.blocks import ROOT

SCRIPT = """
import torch
import batchscale as bs
from layers import net
from rules import Rule

class Mine(bs.Classification):
    target = "validation_error < 0.3"

    def data(self):
        x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
        return {split: (x, (x[:, 0] > 0).long()) for split in ("train", "validation")}

    def model(self):
        return net()

if __name__ == "__main__":
    run = bs.sweep(
        workload=Mine, optimizer=["sgd", Rule], batch_size=[16, 32, 64], trials=2,
        budget="40 steps", search={"learning_rate": {"log": [0.1, 1]}}, engine="module",
        results="runs", address=%r,
    )
    print("swept", run.summary.trained, "failed", run.summary.failed)
    print("curves", len(run.regimes()))
"""
LAYERS = "import torch\ndef net():\n    return torch.nn.Linear(4, 2)\n"
RULES = "import torch\nclass Rule(torch.optim.Adam):\n    def __init__(self, params, lr=0.1):\n"
RULES += "        super().__init__(params, lr=lr)\n"


def run_script(folder: Path, address: str) -> subprocess.CompletedProcess[str]:
    """What ``python train.py`` says, in the folder of the script."""
    (folder / "train.py").write_text(SCRIPT % address)
    (folder / "layers.py").write_text(LAYERS)
    (folder / "rules.py").write_text(RULES)
    return subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["swept 12 failed 0", "curves 2"], done.stderr


@pytest.mark.slow
def test_a_script_sweeps_once(tmp_path: Path) -> None:
    check(run_script(tmp_path, "none"))


@pytest.mark.ray
@pytest.mark.slow
def test_a_script_sweeps_once_on_workers(tmp_path: Path, ray_address: str) -> None:
    check(run_script(tmp_path, ray_address))
