"""A small-batch penalty and crossovers in the report: a sentence and a table, where they exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.figure_data import FigureData, Query
from analysis.fit.knee import log_steps, theta
from analysis.report import page, payload

SIZES = [2**i for i in range(3, 13)]
CURVES = {
    "sgd": theta(900, 100, 1.2),
    "<i>adam</i>": theta(300, 600, 1.2),
    "steep": theta(700, 700, 1.2, 1.3),
}


def made(folder: Path, *names: str) -> dict[str, Any]:
    """The payload of a file of these curves, measured with 3 % of noise."""
    rng = np.random.default_rng(11)
    lines = ["optimizer,batch_size,steps"]
    for name in names:
        steps = np.exp(log_steps(np.log(SIZES), CURVES[name]) + rng.normal(0, 0.03, len(SIZES)))
        lines += [f"{name},{size},{each:.6g}" for size, each in zip(SIZES, steps, strict=True)]
    path = folder / "curves.csv"
    path.write_text("\n".join(lines) + "\n")
    return payload(FigureData(Query(sources=[path])))


def tables(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (panel,) = content["panels"]
    (view,) = panel["views"]
    return {table["caption"]: table for table in view["tables"]}


@pytest.fixture(scope="module")
def crossing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return made(tmp_path_factory.mktemp("crossing"), "sgd", "<i>adam</i>")


@pytest.mark.slow
def test_a_crossover_has_a_row_and_a_sentence(crossing: dict[str, Any]) -> None:
    table = tables(crossing)["Crossovers"]
    (row,) = table["rows"]
    assert [cell[0] for cell in row][2:] == ["sgd", "<i>adam</i>"]
    (sentence,) = crossing["panels"][0]["views"][0]["crossovers"]
    assert row[1][0] in sentence
    assert "sgd takes fewer steps below" in sentence


def test_names_are_escaped(crossing: dict[str, Any]) -> None:
    text = page(crossing)
    text = text[: text.index("<script")]
    assert "<i>adam" not in text
    assert "&lt;i&gt;adam&lt;/i&gt; above" in text
    assert "Two curves cross where" in text


@pytest.mark.slow
def test_a_penalty_is_a_finding_and_no_caveat(tmp_path: Path) -> None:
    content = made(tmp_path, "steep")
    (panel,) = content["panels"]
    (view,) = panel["views"]
    table = tables(content)["Regimes"]
    names = [column["name"] for column in table["columns"]]
    cells = dict(zip(names, (cell[0] for cell in table["rows"][0]), strict=True))
    (sentence,) = view["penalties"]
    assert cells["small-batch penalty"].rstrip("×") in sentence
    assert cells["best batch size"] in sentence
    part = view["findings"][0]["parts"][0]
    assert (part["name"], part["text"], part["is"]) == (
        "best batch size", cells["best batch size"], "reached"
    )  # fmt: skip
    assert not any("penalty" in warning["text"] for warning in view["warnings"])
    assert "which is a small-batch penalty" in page(content)
    assert "Crossovers" not in tables(content)


def test_without_either_the_page_does_not_name_them(tmp_path: Path) -> None:
    content = made(tmp_path, "sgd")
    (view,) = content["panels"][0]["views"]
    assert view["penalties"] == view["crossovers"] == []
    names = [column["name"] for column in tables(content)["Regimes"]["columns"]]
    assert "best batch size" not in names
    assert "penalty" not in content["html"]
    assert "Two curves cross" not in content["html"]


def test_steps_in_a_unit_of_the_source_are_no_finding() -> None:
    """An epoch of gnn has an unknown number of examples, one of resnet a known one."""
    where = "workload in ('gnn', 'resnet') AND submitter = 'NVIDIA'"
    content = payload(FigureData(Query(sources=["published"], where=where)))
    texts = {panel["workload"]: panel["views"][0] for panel in content["panels"]}
    (of_gnn,), (of_resnet,) = (texts[name]["findings"] for name in ("gnn", "resnet"))
    assert "; least steps ≤ 1,750" in of_resnet["rests"]  # its large end is not level
    assert "steps" not in of_gnn["rests"]
    assert any("not in steps" in each["text"] for each in texts["gnn"]["warnings"])
