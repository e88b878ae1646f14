"""Tables and sentences count in the workload's own unit; in examples where it is not one.

Axes of figures are in ``test_tokens``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.figure_data import FigureData
from analysis.formatting import unit, units
from analysis.report.payload import payload
from batchscale.output.regime_table import regimes as table
from tests.analysis.gallery import Row
from tests.analysis.measured import measured

pytestmark = pytest.mark.usefixtures("closed_figures")


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
def of_images(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    return measured(tmp_path_factory.mktemp("images") / "runs", images)


@pytest.mark.slow
def test_the_report_counts_in_it(of_images: FigureData, tmp_path: Path) -> None:
    made = payload(of_images)
    html = re.sub(r"<[^>]*>", " ", made["html"])
    assert "examples" not in html.replace("Steps to target against batch size", "")
    assert re.search(r"critical batch size\s+≤ 168\s+images", html)
    view = made["panels"][0]["views"][0]
    names = {column["name"] for each in view["tables"] for column in each["columns"]}
    assert {"min images", "images"} <= names
    assert {curve["units"] for curve in view["curves"]} == {"images"}
    assert "the fewest examples" in payload(measured(tmp_path / "runs", mixed))["html"]


def test_the_table_of_regimes_counts_in_it(of_images: FigureData) -> None:
    located = [found for found in of_images.regimes if found is not None]
    said = table([found.to_dict() for found in located], "table")
    assert "batch sizes are of images" in said
    assert "min images" in said
    assert "min_examples" in table([found.to_dict() for found in located], "csv").split("\n")[0]
    both = [{**located[0].to_dict(), "example_unit": one} for one in ("image", "sequence")]
    assert "min examples" in table(both, "table")
