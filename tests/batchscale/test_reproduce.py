"""A trial that raised in a sweep raises again, through the command that the sweep has printed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import batchscale as bs
from tests.batchscale.blocks import ROOT
from tests.batchscale.conftest import Answer, Command
from tests.user_models import LINEAR

LIMITED = "from layers import Net\n" + LINEAR.replace("torch.nn.Linear", "Net")
LAYERS = """\
import torch

class Net(torch.nn.Linear):
    step = 0

    def forward(self, x):
        if self.training and torch.is_grad_enabled():
            self.step += 1
            if self.step == 58:
                raise ValueError("57 steps are enough")
        return super().forward(x)
"""
OPTIMIZER = """\
import torch

class Rule(torch.optim.SGD):
    def __init__(self, params, lr=0.1):
        super().__init__(params, lr=lr)
"""
EXPERIMENT = """\
workload: limited.py:Mine
grid: {batch_size: 32, optimizer: 'rule.py:Rule'}
search: {learning_rate: {log: [0.001, 0.01]}}
trials: 2
budget: 200 steps
engine: module
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an experiment; its name needs quotes in a shell."""
    folder = tmp_path / "my experiments"
    folder.mkdir()
    for name, text in (
        ("limited.py", LIMITED),
        ("layers.py", LAYERS),
        ("rule.py", OPTIMIZER),
        ("limited.yaml", EXPERIMENT),
    ):
        (folder / name).write_text(text)
    return folder


def swept(command: Command, folder: Path, *where: str) -> tuple[Answer, str]:
    """What the sweep says, and the command of its hint."""
    answer = command("sweep", folder / "limited.yaml", "--results", folder.parent / "runs", *where)
    assert answer.status == 1
    assert "error: ValueError: 57 steps are enough" in answer.err
    (hint,) = [line for line in answer.err.splitlines() if line.startswith("hint: ")]
    return answer, hint.removeprefix("hint: the same again: ")


def give(line: str, here: Path) -> subprocess.CompletedProcess[str]:
    """A printed command, in a shell of its own; ``batchscale`` is the program of this tree."""
    program = f"{shlex.quote(sys.executable)} -m batchscale"
    return subprocess.run(
        ["sh", "-c", line.replace("batchscale trial", f"{program} trial")],
        cwd=here,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def check(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert done.returncode == 1
    assert f'File "{folder / "layers.py"}", line 10, in forward' in done.stderr
    assert "error: ValueError: 57 steps are enough" in done.stderr


@pytest.mark.slow
def test_the_printed_command_raises_where_the_sweep_did(
    command: Command, here: Path, folder: Path
) -> None:
    _, line = swept(command, folder, "--address", "none")
    assert line.startswith(f"cd '{folder}' && batchscale trial --from ")
    rows = bs.open(folder.parent / "runs").trials
    assert (rows["steps_run"] < 57).all()  # the last evaluation before it
    check(give(line, here), folder)


@pytest.mark.ray
@pytest.mark.slow
def test_of_a_trial_on_a_worker_too(
    command: Command, here: Path, folder: Path, ray_address: str
) -> None:
    _, line = swept(command, folder, "--address", ray_address)
    check(give(line, here), folder)


@pytest.mark.slow
def test_after_an_edit_of_the_code_it_still_finds_the_study(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks for an error edits the optimizer, or mends what it came from."""
    _, line = swept(command, folder, "--address", "none")
    monkeypatch.chdir(folder)
    (folder / "rule.py").write_text(OPTIMIZER + "print('being looked at')\n")
    arguments = shlex.split(line.split("batchscale ")[1])
    again = command(*arguments)
    assert "error: ValueError: 57 steps are enough" in again.err
    (folder / "layers.py").write_text(LAYERS.replace("58", "580"))
    mended = command(*arguments)
    assert mended.status == 1
    said = mended.out.splitlines()[-1]
    assert said.startswith("200 steps without the error that was recorded after step 5")


def test_no_folder_where_none_is_needed(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    _, line = swept(command, folder, "--address", "none")
    assert line.startswith("batchscale trial --from ")


def test_rows_hold_no_absolute_path(command: Command, folder: Path) -> None:
    swept(command, folder, "--address", "none")
    (study,) = bs.open(folder.parent / "runs").studies.to_dict("records")
    assert str(folder) not in str(study)
