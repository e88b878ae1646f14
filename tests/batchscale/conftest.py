"""A small experiment that was swept, and the command line as tests call it."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import batchscale as bs
from batchscale import cli
from batchscale.cli import analysis as analysis_commands
from batchscale.output import progress
from experiments.scheduling.messages import ignore

EXPERIMENT = """\
name: small
workload: digits-softmax
grid:
  batch_size: 32..256
  optimizer: [sgd, momentum]
search:
  sgd: {learning_rate: {log: [0.1, 3]}}
  momentum: {learning_rate: {log: [0.03, 1]}, momentum: 0.9}
trials: 4
budget: 3 epochs + 150 steps
target: validation_error < 0.1
engine: module
"""
"""Asking which engine is faster would take most of the time of so short studies."""


_STAGE = re.compile(
    r"(loading the workload and its data|trying its model, loss and metrics"
    r"|training it whole and in micro-batches|evaluating it in several ways|stacking it"
    r"|timing the (module|stacked) engine) …"
    r"|\d+:\d\d  (reading the experiment|planning the studies|reading \S+"
    r"|loading the first workload|starting Ray on this machine|joining \S+"
    r"|waiting for the first worker)"
)
"""What ``check`` and ``sweep`` print of how far they are before they train."""


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    status: int
    out: str
    err: str

    @property
    def complaint(self) -> list[str]:
        """See ``after_stages``."""
        return after_stages(self.err)


def after_stages(err: str) -> list[str]:
    """The lines of a standard error behind the lines of stages that it begins with."""
    return list(itertools.dropwhile(_STAGE.fullmatch, err.splitlines()))


Command = Callable[..., Answer]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """``command("regimes", path)``: run in this process, where imports are warm.

    Without the lines of progress that a command prints every ten seconds: on a slow machine they
    would stand before an error's line.
    """
    monkeypatch.setattr(analysis_commands, "end_process", _stay)
    monkeypatch.setattr(progress, "_SECONDS", math.inf)

    def run(*arguments: object) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        code = end.value.code
        return Answer(code if isinstance(code, int) else 0, said.out, said.err)

    return run


def _stay() -> None:
    raise AssertionError("the command would have ended this process, and the tests with it")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, with the default results folder inside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BATCHSCALE_RESULTS", raising=False)
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of ``EXPERIMENT``, swept once."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.yaml").write_text(EXPERIMENT)
    bs.sweep(folder / "small.yaml", results=folder / "runs", address="none", observer=ignore)
    return folder / "runs"


@pytest.fixture
def untouched() -> Callable[[Path], Callable[[], bool]]:
    """``same = untouched(folder)``, and ``same()`` later: is every file as it was?"""

    def watch(folder: Path) -> Callable[[], bool]:
        before = snapshot(folder)
        return lambda: snapshot(folder) == before

    return watch


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below, with the files' bytes."""
    found: dict[str, bytes | None] = {}
    for base, folders, files in os.walk(folder):
        found |= {os.path.join(base, name): None for name in folders}
        found |= {os.path.join(base, n): Path(base, n).read_bytes() for n in files}
    return found
