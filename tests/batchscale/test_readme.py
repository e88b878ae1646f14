"""Every command and program of the README and the documentation runs as it is written."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

from tests.batchscale.blocks import ROOT, blocks, demo_commands, parse_cloud
from tests.batchscale.conftest import Command

PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
NO_RAY = ("--address", "none")


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


def run_python(text: str, name: str, scope: dict[str, Any]) -> None:
    exec(compile(text, name, "exec"), scope)
    plt.close("all")


def run_page(page: str, command: Command, here: Path, *where: str) -> list[str]:
    """Run the page's blocks in order, sweeps at ``where``; the commands that were run."""
    ran = []
    scope: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language in ("python", "yaml", "csv") and block.title:
            (here / block.title).write_text(block.text)
        elif block.language == "python":
            run_python(block.text, page, scope)
        elif block.language == "sh" and block.title != "cloud":
            for line in block.lines:
                if not line.startswith("batchscale "):
                    assert line in ("make demo", "make test")
                    continue
                words = shlex.split(line)[1:]
                answer = command(*words, *(where if words[0] == "sweep" else ()))
                assert answer.status == 0, f"{line}\n{answer.err}"
                ran.append(line)
    return ran


@pytest.mark.ray
def test_the_readme_runs_as_written(command: Command, cluster: Path) -> None:
    ran = run_page("README.md", command, cluster)
    assert len([line for line in ran if line.startswith("batchscale query")]) == 3
    assert (cluster / "steps.pdf").is_file()
    assert (cluster / "steps.csv").is_file()


@pytest.mark.parametrize("page", ["docs/optimizers.md", "docs/workloads.md"])
def test_other_pages_run_as_written(command: Command, here: Path, page: str) -> None:
    """Without Ray, which the README's sweeps go through."""
    run_page(page, command, here, *NO_RAY)


def test_the_page_of_published_curves_runs_as_written(command: Command, here: Path) -> None:
    ran = run_page("docs/published.md", command, here)
    assert len(ran) == 7
    assert (here / "published.csv").is_file()
    assert (here / "runs" / "trials" / "mine").is_dir()


def test_the_page_of_figures_runs_as_written(
    command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the fits, which take most of the time and are held by other tests."""
    from analysis.material import Material

    monkeypatch.setattr(Material, "regimes", property(lambda shown: [None] * len(shown.curves)))
    ran = run_page("docs/figures.md", command, here)
    assert len(list((here / "figures").glob("*.png"))) == len(ran) == 13


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


@pytest.mark.parametrize("page", PAGES)
def test_commands_for_clusters_are_what_ray_reads(page: str, here: Path) -> None:
    (here / "my_project").mkdir()
    (here / "cluster.yaml").write_text((ROOT / "cluster.yaml").read_text())
    for block in blocks(page):
        if block.language == "sh" and block.title == "cloud":
            for line in block.lines:
                parse_cloud(line)


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_are_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (ROOT / page).parent.joinpath(target).exists(), target


def test_the_readmes_experiment_says_what_the_reference_does() -> None:
    """Every key of the README's file and of the reference is one that a file may have."""
    from experiments.config.experiment import Experiment

    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    table = text.split("## Commands")[0]
    named = {key.split(".")[0] for key in re.findall(r"^\| `(\w[\w.<>]*)`", table, re.MULTILINE)}
    assert named == set(Experiment.model_fields) - {"name"} | {"name"}
