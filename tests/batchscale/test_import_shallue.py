"""The published release on the command line: brought in, what is left out named, never twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchscale.output import progress
from results.reader import open as open_results
from tests.batchscale.conftest import Command
from tests.results import release


def test_import_shallue(command: Command, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials, measurements = release.write(here / "release", release.small())
    broken = next((here / "release").rglob("metadata.json"))
    broken.unlink()
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    first = command("import", "shallue", "release", "--results", "runs")
    assert first.status == 0, first.err
    assert f"imported {trials - 1:,} trials" in first.out
    assert f"left out {broken.parent.relative_to(here / 'release')}" in first.err
    assert "measurements" in first.err  # how far it is
    found = open_results(here / "runs")
    assert len(found.trials) == trials - 1
    assert 0 < len(found.measurements) <= measurements
    again = command("import", "shallue", "release", "--results", "runs")
    assert again.status == 0
    assert "already" in again.out
    wrong = command("import", "shallue", "release", "--name", "mine", "--results", "runs")
    assert wrong.status != 0
    assert "import shallue has no option --name" in wrong.err
