"""Every command and program of the README runs as it is written; `test_pages` has docs/."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from batchscale.live.service import LiveReport
from tests.batchscale.blocks import NO_RAY, ROOT, demo_commands, run_page, run_python
from tests.batchscale.conftest import Command
from tests.batchscale.test_pages import answer_once

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for the README and its notebook, which train the same: nothing twice."""
    return tmp_path_factory.mktemp("readme")


@pytest.fixture
def cluster(folder: Path, ray_address: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That folder, and the Ray that all tests share."""
    del here  # its surroundings: the default results folder lies where one works
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RAY_ADDRESS", ray_address)
    return folder


@pytest.mark.ray
def test_the_readme_runs_as_written(
    command: Command, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveReport, "forever", answer_once)
    ran = run_page("README.md", command, cluster)
    assert len([line for line in ran if line.startswith("batchscale sweep")]) == 2
    assert (cluster / "report.html").is_file()
    assert (cluster / "steps.pdf").is_file()
    assert (cluster / "steps.csv").is_file()


@pytest.mark.usefixtures("here")
def test_the_demo_runs_on_its_small_experiment(command: Command) -> None:
    """The Makefile's own lines, with ``digits-small`` in the place of ``digits``."""
    ran = list(demo_commands())
    assert [words[0] for words in ran] == ["sweep", "regimes", "plot"]
    for words in ran:
        small = [re.sub(r"\bdigits\b", "digits-small", word) for word in words]
        answer = command(*small, *(NO_RAY if words[0] == "sweep" else ()))
        assert answer.status == 0, answer.err
    assert answer.out.startswith("wrote figures/")


@pytest.mark.ray
def test_the_notebook_runs(cluster: Path) -> None:
    notebook = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
    scope: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            run_python("".join(cell["source"]), cell["id"], scope)
    assert len(scope["old"].measurements) > 0
    assert cluster.joinpath("results", "notebook", "trials").is_dir()
