"""The additions of CONTRIBUTING.md, made in a copy of the packages: each is one new file."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.batchscale.blocks import ROOT, Block, blocks

PACKAGES = ("batchscale", "workloads", "experiments", "results", "analysis")
LISTED = {
    "experiments/optimizers/sign_sgd.py": ("optimizers", "sign-sgd"),
    "experiments/schedules/inverse_time.py": ("schedules", "inverse-time"),
    "experiments/techniques/centralize.py": ("techniques", "centralize"),
    "analysis/figures/examples.py": ("figures", "examples"),
    "results/imports/jsonl.py": ("imports", "jsonl"),
}
"""The files that the page adds, with the list and the name under which each appears."""


@pytest.fixture(scope="module")
def page() -> list[Block]:
    return blocks("CONTRIBUTING.md")


@pytest.fixture
def copy(tmp_path: Path, page: list[Block]) -> Path:
    """A copy of the packages with the page's files: those of packages and those of a user."""
    for package in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "runs")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    for block in page:
        if block.title:
            file = tmp_path / block.title
            assert not file.exists(), f"{block.title} is no new file"
            file.write_text(block.text)
    return tmp_path


def run(line: str, folder: Path) -> str:
    """The output of a command of the page, by the packages of ``folder``."""
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(line)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "MPLBACKEND": "agg"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


def test_each_addition_is_one_file(page: list[Block]) -> None:
    additions = [block.title for block in page if block.title.startswith(PACKAGES)]
    assert sorted(additions) == sorted(LISTED)


@pytest.mark.slow
def test_the_additions_work(page: list[Block], copy: Path) -> None:
    commands = [line for block in page if block.language == "sh" for line in block.lines]
    output = {line: run(line, copy) for line in commands}
    for kind, name in LISTED.values():
        names = [row.split()[0] for row in output[f"batchscale list {kind}"].splitlines() if row]
        assert name in names
    (counts,) = (text for line, text in output.items() if line.startswith("batchscale query"))
    for optimizer in ("sgd", "sign-sgd"):
        assert sum(line.split()[:1] == [optimizer] for line in counts.splitlines()) == 2
    assert "centralize" in counts
    assert (copy / "examples.png").stat().st_size > 10_000
    assert (copy / "examples.csv").read_text().startswith("curve,batch_size,examples")
    assert "mine" in output["batchscale regimes imported"]
