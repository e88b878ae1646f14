"""Axes, tables and sentences count in the workload's own unit; in examples where it is not one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import results
from analysis import figures
from analysis.figure_data import FigureData, Query
from analysis.formatting import unit, units
from analysis.report.payload import payload
from batchscale.output.regime_table import regimes as table
from tests.analysis import gallery
from tests.analysis.gallery import Row
from tests.analysis.legible import texts
from tests.analysis.measured import OTHER_DATA, measured
from tests.marks import quick

pytestmark = pytest.mark.usefixtures("closed_figures")
PAPER = [name for name in figures.names() if name.startswith("shallue-")]
OURS = [name for name in figures.names() if name not in PAPER]
WITHOUT = {"training", "search", "techniques", "collapse", "shallue-fig9", "shallue-fig10"}
"""Figures without an axis of batch sizes."""


def images(row: Row) -> Row:
    return row if "metrics" in row else {**row, "example_unit": "image"}


def mixed(row: Row) -> Row:
    if "metrics" in row:
        return row
    return {**row, "example_unit": "image" if row["optimizer"] == "sgd" else "sequence"}


def test_one_unit_or_examples() -> None:
    assert units(["image", "image"]) == "images"
    assert units(["category"]) == "categories"
    assert units(["image", "sequence"]) == "examples"
    assert unit(["image", None]) == "image"
    assert unit(["image", "sequence"]) == "example"
    assert unit([None]) == "example"


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Row], Row]], FigureData]:
    held: dict[Callable[[Row], Row], FigureData] = {}

    def make(change: Callable[[Row], Row]) -> FigureData:
        if change not in held:
            root = gallery.write(tmp_path_factory.mktemp("paper") / "runs", change)
            held[change] = FigureData(Query(sources=[results.open(root)]))
        return held[change]

    return make


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Row], Row]], FigureData]:
    held: dict[Callable[[Row], Row], FigureData] = {}

    def make(change: Callable[[Row], Row]) -> FigureData:
        if change not in held:
            held[change] = measured(tmp_path_factory.mktemp("ours") / "runs", change)
        return held[change]

    return make


def written(name: str, material: FigureData) -> str:
    return "\n".join(texts(figures.draw(name, material)))


@pytest.mark.slow
@pytest.mark.parametrize("name", quick(OURS, 4))
def test_our_figures_count_in_it(
    name: str, ours: Callable[[Callable[[Row], Row]], FigureData], tmp_path: Path
) -> None:
    data = OTHER_DATA[name](tmp_path / "made", images) if name in OTHER_DATA else ours(images)
    said = written(name, data)
    assert "examples" not in said
    if name not in WITHOUT:
        assert "images" in said
    if name not in OTHER_DATA and name not in WITHOUT:
        assert "examples" in written(name, ours(mixed))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_the_papers_figures_count_in_it(
    name: str,
    paper: Callable[[Callable[[Row], Row]], FigureData],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FigureData, "regimes", property(lambda shown: [None] * len(shown.curves)))
    monkeypatch.setattr(FigureData, "published", property(lambda _: []))
    said = written(name, paper(images))
    # A field of these workloads is called examples; axes name units in brackets.
    assert "(examples)" not in said
    if name not in WITHOUT:
        assert "batch size (images)" in said.replace("\n(", " (")


@pytest.mark.slow
def test_the_report_counts_in_it(ours: Callable[[Callable[[Row], Row]], FigureData]) -> None:
    made = payload(ours(images))
    html = re.sub(r"<[^>]*>", " ", made["html"])
    assert "examples" not in html.replace("Steps to target against batch size", "")
    assert re.search(r"critical batch size\s+≤ 168\s+images", html)
    view = made["panels"][0]["views"][0]
    names = {column["name"] for each in view["tables"] for column in each["columns"]}
    assert {"min images", "images"} <= names
    assert {curve["units"] for curve in view["curves"]} == {"images"}
    assert "the fewest examples" in payload(ours(mixed))["html"]


def test_the_table_of_regimes_counts_in_it(
    ours: Callable[[Callable[[Row], Row]], FigureData],
) -> None:
    located = [found for found in ours(images).regimes if found is not None]
    said = table([found.to_dict() for found in located], "table")
    assert "batch sizes are of images" in said
    assert "min images" in said
    assert "min_examples" in table([found.to_dict() for found in located], "csv").split("\n")[0]
    both = [{**located[0].to_dict(), "example_unit": one} for one in ("image", "sequence")]
    assert "min examples" in table(both, "table")
