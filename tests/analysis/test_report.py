"""The report's payload: its numbers are those of the curves and regimes, its texts are escaped."""

from __future__ import annotations

import copy
import importlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import results
from analysis.curves.points import tabulate
from analysis.figure_data import FigureData, Query
from analysis.report import findings, page, payload, provenance
from analysis.report.bibtex import bibtex
from analysis.report.page import embedded
from analysis.report.palette import numbered, palette
from analysis.report.panels import View
from analysis.report.series import compact
from tests import reported

module = importlib.import_module("analysis.report.payload")
pages = importlib.import_module("analysis.report.page")


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    root = reported.write(tmp_path_factory.mktemp("report") / "runs", notes=("a note of its own",))
    return FigureData(Query(sources=[results.open(root)]))


@pytest.fixture(scope="module")
def made(material: FigureData) -> dict[str, Any]:
    return payload(material, pictures=True)


def near(one: Any, other: Any) -> bool:
    """Equal, numbers to five digits."""
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return abs(one - other) <= 5e-5 * abs(other)
    return bool(one == other)


@pytest.mark.slow
def test_points_and_regimes_are_those_of_the_curves(
    material: FigureData, made: dict[str, Any]
) -> None:
    (panel,) = made["panels"]
    shown = panel["views"][0]["curves"]
    assert [curve["label"] for curve in shown] == ["sgd", "momentum"]
    for one, curve, found in zip(shown, material.curves, material.regimes, strict=True):
        assert found is not None
        told = found.to_dict()
        for name, interval in one["regimes"].items():
            assert all(near(interval[end], told[name][end]) for end in ("value", "low", "high"))
        for name in ("k", "a", "min_steps", "critical_batch_size"):
            assert near(one["fit"][name], found.best[name])
        columns = one["points"]
        for i, point in enumerate(curve.points):
            for name, value in tabulate(point).items():
                if name in columns:
                    assert near(columns[name][i], value), name
                else:
                    assert name == "examples" or value in (None, "")
            assert columns["trial"][i] == f"{one['label']}-{point.batch_size}-0"
            assert columns["steps"][i] == reported.steps_of(one["label"], point.batch_size)


def test_sentences_have_the_intervals_of_the_table(made: dict[str, Any]) -> None:
    view = made["panels"][0]["views"][0]
    table = next(each for each in view["tables"] if each["caption"] == "Regimes")
    names = [column["name"] for column in table["columns"]]
    for found, row in zip(view["findings"], table["rows"], strict=True):
        cells = dict(zip(names, (cell[0] for cell in row), strict=True))
        assert cells["curve"] == found["label"]
        for part in found["parts"]:
            if part["is"] != "open":
                assert part["text"] == cells[part["name"]]
                assert (part["is"] == "reached") == part["text"].endswith("]")
        assert "best of 8 trials" in found["rests"]
    (sentence,) = view["compared"]
    assert sentence.startswith(
        "over batch sizes 1 to 256, the ratio of the fewest examples to the fewest steps of "
        "momentum is "
    )
    assert any("only 8 trials" in each["text"] for each in view["warnings"])
    assert any(each["text"] == "a note of its own" for each in view["warnings"])


def test_other_goals_are_computed_or_refused_with_the_reason(
    material: FigureData, made: dict[str, Any]
) -> None:
    goals = {goal["target"]: goal for goal in made["panels"][0]["goals"]}
    assert set(goals) == {reported.TARGET, reported.EASIER, reported.HARDER}
    assert goals[reported.HARDER]["view"] is None
    assert "stopped" in goals[reported.HARDER]["reason"]
    views = {view["id"]: view for view in made["panels"][0]["views"]}
    easier = views[goals[reported.EASIER]["view"]]
    again = material.at(reported.EASIER)
    for one, curve, found in zip(easier["curves"], again.curves, again.regimes, strict=True):
        assert one["points"]["steps"] == [compact(point.steps) for point in curve.points]
        assert found is not None
        assert near(one["regimes"]["critical_batch_size"]["value"], found.critical_batch_size.value)
    recorded = views[goals[reported.TARGET]["view"]]
    assert recorded["recorded"]
    assert not easier["recorded"]
    assert easier["curves"][0]["points"]["steps"] < recorded["curves"][0]["points"]["steps"]


@pytest.mark.slow
def test_what_was_asked_for_comes_first(material: FigureData) -> None:
    query = replace(material.query, target=reported.EASIER, where="optimizer = 'sgd'")
    (panel,) = payload(FigureData(query))["panels"]
    assert panel["views"][0]["target"] == reported.EASIER
    shown = {goal["target"] for goal in panel["goals"] if goal["view"]}
    assert shown == {reported.EASIER, reported.TARGET}


def test_the_baseline_is_the_one_asked_for_else_sgd(material: FigureData) -> None:
    pairs = list(zip(material.curves, material.regimes, strict=True))
    view = View(target=None, pairs=pairs, recorded=True, names={"long, sgd": "sgd"})
    for asked, used in ((None, "sgd"), ("momentum", "momentum"), ("long, sgd", "sgd")):
        against = findings.baseline(view, asked)
        assert against == used
        (held,) = filter(None, findings.comparisons(view, against))
        assert held.baseline == used
    alone = View(target=None, pairs=pairs[:1], recorded=True, names={})
    assert findings.baseline(alone, None) is None


def test_what_it_was_made_from(made: dict[str, Any]) -> None:
    assert made["experiments"] == [{"name": "e", "yaml": reported.YAML}]
    told = {row["name"]: row["text"] for row in made["environment"]}
    assert told["torch"] == "2.11.0"
    assert told["engine"] == "stacked"
    assert made["about"]["trials"] == 2 * 8 * len(reported.SIZES)
    assert made["about"]["reached"] == made["about"]["trials"]


@pytest.mark.parametrize(("experiment", "torch"), [("digits", "2.15.0"), ("lm-tiny", "2.14.1")])
def test_the_experiments_of_its_trials_are_cited(experiment: str, torch: str) -> None:
    """All experiments of one folder may have one source: the last one stood for all of them."""
    where = f"experiment = '{experiment}'"
    data = FigureData(Query(sources=[results.open("own")], where=where))
    assert {each["name"] for each in provenance.experiments(data)} == {experiment}
    (cited,) = provenance.sources(data)
    assert cited["citation"].endswith(f"experiment {experiment}")
    assert f'"torch":"{torch}"' in cited["notes"]
    both = FigureData(
        Query(sources=[results.open("own")], where="experiment IN ('digits', 'lm-tiny')")
    )
    rows = provenance.sources(both)
    assert len(rows) == 2
    entries = bibtex("1", rows)
    assert entries.count("@misc{batchscale") == 2
    assert "experiment digits" in entries
    assert "experiment lm-tiny" in entries


def test_the_page_is_one_file_that_asks_nothing_of_a_network(made: dict[str, Any]) -> None:
    text = page(made)
    head = text.split("<script", 1)[0]
    assert "default-src 'none'" in head
    assert "connect-src 'none'" in head
    assert "connect-src 'self'" in page(made, live="/state.json").split("<script", 1)[0]
    for tag in ('<link rel="stylesheet', '<img src="http', "<script src", "<iframe", "@import"):
        assert tag not in text.replace(pages.plotly(), "")
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert held is not None
    assert json.loads(held[1]) == {k: v for k, v in made.items() if k not in ("html", "pictures")}


def test_a_live_page_may_begin_with_nothing() -> None:
    text = page(None, live="/state.json")
    assert "Nothing is computed yet" in text
    assert '<script type="application/json" id="live">"/state.json"</script>' in text


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        self.found.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


BAD = '</script><img src=x onerror="alert(1)"><b>x</b>'


@pytest.mark.slow
def test_every_text_is_escaped(tmp_path: Path) -> None:
    root = reported.write(
        tmp_path / "runs", workload=f"w {BAD}", optimizers=(f"sgd {BAD}", f"momentum {BAD}"),
        trials=2, yaml=f"name: {BAD}", notes=(f"note {BAD}",), measured=False,
    )  # fmt: skip
    made = payload(FigureData(Query(sources=[results.open(root)])), title=f"title {BAD}")
    text = page(made)
    parsed = Tags()
    parsed.feed(text)
    assert "img" not in parsed.found
    assert parsed.found.count("script") == 4
    for where in ("w ", "sgd ", "note ", "name: ", "title "):
        assert any(f"{where}{BAD}" in each for each in parsed.texts), where


def test_json_ends_no_script() -> None:
    text = embedded({"a": "</script><!-- &\u2028", "b": 1.5})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!-- &\u2028", "b": 1.5}


def test_too_many_trials_are_left_out_and_said(
    made: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_TRIALS", 10)
    many = copy.deepcopy(made)
    module.leave_out_trials(many)
    assert many["spared"] == 2 * made["about"]["trials"]  # at both goals
    assert not any(c["search"]["tried"] for c in many["panels"][0]["views"][0]["curves"])
    assert "are too many for one page" in pages.contents(many)
    assert made["spared"] is None


def test_without_javascript_findings_and_tables_are_there(made: dict[str, Any]) -> None:
    parsed = Tags()
    parsed.feed(made["html"])
    text = re.sub(r"\s+", " ", "".join(parsed.texts))
    view = made["panels"][0]["views"][0]
    for each in view["findings"]:
        for part in each["parts"]:
            assert f"{part['name']} {part['text']}" in text
    assert made["html"].count("<img") == made["html"].count(made["pictures"]["p0"]) == 1
    assert "drawn by JavaScript" not in text
    plain = pages.contents({**made, "pictures": {}})
    assert "drawn by JavaScript" in plain
    assert "<img" not in plain
    assert parsed.found.count("table") == sum(
        len(view["tables"]) for view in made["panels"][0]["views"]
    )
    assert re.findall(r"<h([1-6])", made["html"])[:4] == ["1", "2", "3", "3"]


def many_of(view: dict[str, Any]) -> int:
    """How many findings a view has, folded ones too."""
    return sum(len(view[name]) for name in ("findings", "penalties", "compared", "crossovers"))


def test_the_chart_is_first_and_all_but_five_findings_are_folded(made: dict[str, Any]) -> None:
    html = made["html"]
    assert html.index('id="p0-steps"') < html.index("<h3>Findings") < html.index("<details")
    opened = re.sub(r"<details.*?</details>", "", html, flags=re.DOTALL)
    assert "<table" not in opened
    assert "a note of its own" in html
    assert "a note of its own" not in opened
    views = made["panels"][0]["views"]
    assert opened.count("<li>") == sum(min(many_of(v), 5) for v in views) + len(made["sources"])
    many = copy.deepcopy(made)
    view = many["panels"][0]["views"][0]
    view["findings"] = [{**view["findings"][0], "label": f"curve {i}"} for i in range(9)]
    first, _, folded = pages.contents(many).partition('<details id="p0v0-more">')
    assert [f"curve {i}" in first for i in range(9)] == [True] * 5 + [False] * 4
    assert f"{many_of(view) - 5} more findings" in folded
    assert "curve 8" in folded


def test_published_curves_are_called_as_people_call_them(made: dict[str, Any]) -> None:
    names = [each["label"] for each in made["published"]]
    assert "Shallue et al. 2019: mnist-simple-cnn, momentum" in names
    assert "Zhang et al. 2024: c4-transformer-85m, adamw_ewa" in names
    assert "MLPerf: resnet, lars, NVIDIA" in names
    assert len({*names}) == len(names)


@pytest.mark.slow
def test_a_csv_of_steps_alone(tmp_path: Path) -> None:
    curve = tmp_path / "curve.csv"
    rows = [f"{size},{round(100 * (1 + 64 / size))}" for size in reported.SIZES]
    curve.write_text("\n".join(["batch_size,steps", *rows]) + "\n")
    made = payload(FigureData(Query(sources=[results.open(curve)])))
    (panel,) = made["panels"]
    (shown,) = panel["views"][0]["curves"]
    assert shown["points"]["batch_size"] == list(reported.SIZES)
    assert shown["search"] is None
    assert panel["goals"] == [{"target": None, "view": "p0v0", "reason": None}]
    assert "nan" not in page(made).replace(pages.plotly(), "").lower().split("<main", 1)[1][:20_000]


def test_two_batch_sizes_have_no_regimes(tmp_path: Path) -> None:
    curve = tmp_path / "curve.csv"
    curve.write_text("batch_size,steps\n8,100\n16,55\n")
    made = payload(FigureData(Query(sources=[results.open(curve)])))
    view = made["panels"][0]["views"][0]
    assert view["curves"][0]["regimes"] is None
    assert "fewer than three batch sizes" in made["html"]
    assert any("the regimes need three" in each["text"] for each in view["warnings"])


def test_colours_are_those_of_the_figures() -> None:
    looks = palette()
    sheet = "".join(
        (pages.FILES / name).read_text(encoding="utf-8") for name in ("style.css", "print.css")
    )
    for i, look in enumerate(looks):
        assert sheet.count(f"--look{i}: {look['light']}") == 2  # on a screen and on paper
        assert sheet.count(f"--look{i}: {look['dark']}") == 2


def test_a_training_algorithm_looks_alike_in_every_panel() -> None:
    assert numbered([["mine", "adam"], ["adam"]]) == [[0, 2], [2]]
    assert numbered([["momentum"], ["sgd", "sgd, clip 1.0"]]) == [[1], [0, 2]]
    many = [[str(i)] for i in range(8)]
    assert numbered(many) == [[0]] * 8


def test_numbers_are_as_long_as_a_picture_shows() -> None:
    assert compact({"a": [1.0, 1 / 3, float("nan"), 123456789.0, 12345.678]}) == {
        "a": [1, 0.33333, None, 123456789, 12346]
    }


def test_scripts_are_short_strict_and_in_one_scope() -> None:
    for name in pages.SCRIPTS:
        text = (pages.FILES / f"{name}.js").read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400
        assert text.startswith("//")
        assert not re.search(r"\b(eval|new Function|document\.write)\b", text)
    script = pages.script()
    assert script.startswith('(function () {\n"use strict";')
    assert "</script" not in script


def test_the_script_reads_names_that_the_payload_has(made: dict[str, Any]) -> None:
    """Of a curve: a renamed key would leave the charts empty, which only a browser shows."""
    curve = made["panels"][0]["views"][0]["curves"][0]
    read = set(re.findall(r"\bcurves?(?:\[\w+\])?\.([a-z_]+)\b(?!\()", pages.script()))
    methods = {"length"}
    assert read - methods <= set(curve), read - methods - set(curve)
    assert "regime_spans" in read
