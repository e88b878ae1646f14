"""Every snippet of every page of docs/ runs as it is written, and every link leads somewhere."""

from __future__ import annotations

import re
import shutil
import threading
import urllib.request
from pathlib import Path

import pytest

import batchscale as bs
import experiments.training.check
from batchscale.live.service import LiveReport
from experiments.config.compile import Experiment, parse
from tests.batchscale.blocks import NO_RAY, ROOT, blocks, parse_cloud, run_page
from tests.batchscale.conftest import Command
from tests.results import release
from workloads.template import template

DOCS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", *DOCS]
LANGUAGES = {"python", "yaml", "csv", "sh", "text"}


_SWEPT = ("docs/first-hour.md", "docs/optimizers.md", "docs/running.md", "docs/techniques.md")
UNPROBED = dict.fromkeys(_SWEPT, ("--set", "engine=module"))
"""Of many short studies most of the time would go into asking which engine is faster."""


def answer_once(served: LiveReport) -> None:
    """``serve`` until its page was asked for once."""
    thread = threading.Thread(target=served.server.handle_request)
    thread.start()
    with urllib.request.urlopen(served.server.url, timeout=60) as answer:
        assert b"<!DOCTYPE html>" in answer.read()
    thread.join()


def run(page: str) -> bool:
    """Whether it has something to run; the gallery's commands are `make gallery`."""
    some = any(b.language in ("sh", "python") and b.title != "cloud" for b in blocks(page))
    return some and page != "docs/gallery.md"


def sweeps(page: str) -> bool:
    return any(line.startswith("batchscale sweep") for b in blocks(page) for line in b.lines)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in DOCS if run(page)])
def test_a_page_runs_as_written(
    page: str,
    command: Command,
    here: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without Ray, which the README's sweeps go through, and without long probes of speed. Where a
    page speaks of results/runs and does not sweep, a small sweep lies there."""
    monkeypatch.setattr(experiments.training.check, "_RATE_SECONDS", 0.02)
    monkeypatch.setattr(LiveReport, "forever", answer_once)
    if not sweeps(page) and "results/runs" in (ROOT / page).read_text(encoding="utf-8"):
        shutil.copytree(request.getfixturevalue("small"), here / "results" / "runs")
    if page == "docs/results.md":
        cnn = [study for study in release.plan(0.003) if study.name.startswith(release.CNN)]
        release.write(here / "batch_science", cnn)
    run_page(page, command, here, *NO_RAY, *UNPROBED.get(page, ()))
    check = CHECKS.get(page)
    if check is not None:
        check(here)


def first_hour(here: Path) -> None:
    trials = bs.open(here / "results" / "runs").trials
    assert set(trials.groupby("batch_size").size()) == {6}
    assert not trials.trial.duplicated().any()
    shown = {block.title: block.text for block in blocks("docs/first-hour.md")}
    assert shown["my_model.py"] == template("my_model.py")[0]
    for name in ("first.png", "first.csv", "mine.pdf"):
        assert (here / name).is_file()


def published(here: Path) -> None:
    assert (here / "published.csv").is_file()
    assert (here / "runs" / "trials" / "mine").is_dir()


def exported(here: Path) -> None:
    assert len(list(here.glob("tensorboard/*/*/*/events.*"))) == 32


def figures(here: Path) -> None:
    for name in ("forest.pdf", "slide.png", "steps.svg", "serif.pdf", "three.pdf"):
        assert (here / name).stat().st_size > 5_000


CHECKS = {
    "docs/figures.md": figures,
    "docs/first-hour.md": first_hour,
    "docs/published.md": published,
    "docs/results.md": exported,
}


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_of_kinds_that_are_tried(page: str) -> None:
    """``text`` is for what nobody types: shapes of folders, messages, synopses."""
    for block in blocks(page):
        if block.language not in LANGUAGES:
            pytest.fail(f"{page}: a block of {block.language}")
        if block.language == "text" and page != "docs/experiments.md":
            assert not block.text.startswith("batchscale "), block.text


@pytest.mark.parametrize("page", PAGES)
def test_parts_of_experiments_are_right(page: str) -> None:
    """With the keys that every experiment needs in place of those that are not shown."""
    needed = {
        "workload": "workload: digits-mlp\n",
        "grid": "grid: {batch_size: [16], optimizer: [sgd, momentum]}\n",
    }
    for block in blocks(page):
        if block.language == "yaml" and not block.title:
            text = block.text
            if "extends:" not in text:
                text += "".join(more for key, more in needed.items() if f"{key}:" not in text)
            assert parse(text).combinations


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
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text)
    targets += re.findall(r'<img src="([^"]+)"', text)
    for target in targets:
        if not target.startswith("http"):
            assert (ROOT / page).parent.joinpath(target).exists(), target


def test_the_readmes_experiment_says_what_the_reference_does() -> None:
    """Every key of the README's file and of the reference is one that a file may have."""
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    table = text
    named = {key.split(".")[0] for key in re.findall(r"^\| `(\w[\w.<>]*)`", table, re.MULTILINE)}
    assert named == set(Experiment.model_fields) - {"name"} | {"name"}


def test_the_index_of_the_folder_and_that_of_the_site_name_every_page() -> None:
    written = {page.removeprefix("docs/") for page in DOCS} - {"README.md", "index.md"}
    table = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[([\w-]+\.md)\]\(((?:\w+/)?\1)\)", table, re.MULTILINE)
    assert {target for _, target in rows} == written
    site = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    trees = re.findall(r"^```\{toctree\}\n(.*?)^```$", site, re.MULTILINE | re.DOTALL)
    listed = [line for tree in trees for line in tree.splitlines() if re.match(r"^[\w/-]+$", line)]
    assert sorted(f"{name}.md" for name in listed) == sorted(written)
    captions = [found for tree in trees for found in re.findall(r"^:caption: (.*)$", tree, re.M)]
    assert len(captions) == len(trees) == 8
