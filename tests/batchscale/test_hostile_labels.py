"""Names from data that would be more than text where they are printed, drawn or typeset."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot as plt
from matplotlib.text import Text
from rich.console import Console

import results
from analysis import figures
from analysis.curves.groups import label
from analysis.figure_data import FigureData, Query
from analysis.report.panels import panels
from analysis.report.pictures import picture
from batchscale.output.display import Display
from batchscale.output.tables import Format, render
from experiments.config.compile import load
from experiments.errors import ExperimentError
from experiments.scheduling.messages import Note
from results.errors import ResultsError, escaped
from results.exports.tensorboard import _tag as tag
from results.exports.tensorboard import hyperparameters
from results.imports import commit_import
from results.store import Store
from tests import reported

MATH = r"$\frac{$ $x$ $$ \$ <b> & ^_{"
"""Formulas for matplotlib, of which one is wrong; a tag."""
CONTROLS = {
    "a colour": "\x1b[31m",
    "a title of the window": "\x1b]0;x\x07",
    "a C1 control sequence": "\x9b2J",
    "a return": "sgd\rDROP",
    "a line": "sgd\n0 trials failed",
    "a reversal": "\u202egpj.exe",
    "an isolate": "\u2066x",
    "a line separator": "\u2028x",
    "delete": "x\x7f",
}
EFFECTIVE = "effective_learning_rate"
SAFE = re.compile(
    "[^\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]*"
)


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    plt.close("all")


# Figures


@pytest.fixture(scope="module")
def drawn_from(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    root = reported.write(
        tmp_path_factory.mktemp("math") / "runs",
        workload=f"w {MATH}",
        optimizers=(f"sgd {MATH}", f"momentum {MATH}"),
        trials=4,
        notes=(f"note {MATH}",),
    )
    return FigureData(Query(sources=[results.open(root)]))


def is_formula(text: Any, content: str) -> Any:
    """Whether matplotlib would set this content of a text as a formula."""
    return text._preprocess_math(content)[1]


def texts(axes: object) -> list[Text]:
    figure = axes.get_figure(root=True)  # type: ignore[attr-defined]
    figure.draw_without_rendering()
    return [each for each in figure.findobj(Text) if each.get_text()]


@pytest.mark.parametrize(
    "name",
    ["forest", *(pytest.param(each, marks=pytest.mark.slow) for each in ("steps", "tradeoff"))],
)
def test_names_are_no_formulas_in_figures(
    drawn_from: FigureData, name: str, tmp_path: Path
) -> None:
    axes = figures.draw(name, drawn_from)
    shown = [each for each in texts(axes) if "$" in each.get_text()]
    assert shown
    assert not any(is_formula(each, each.get_text()) for each in shown)
    figures.save(axes, tmp_path / "figure.svg")
    root = ElementTree.fromstring((tmp_path / "figure.svg").read_text())
    assert not [each for each in root.iter() if each.tag.endswith("}b")]
    figures.save(axes, tmp_path / "figure.pdf")


def test_names_are_no_formulas_on_given_axes(drawn_from: FigureData) -> None:
    ax = plt.subplots()[1]
    ax.set_yticks([0, 1], ["$a$", "b"])
    figures.draw("forest", drawn_from, ax=ax)
    assert all(is_formula(each, each.get_text()) is False for each in texts(ax))


@pytest.mark.slow
def test_nor_in_the_pictures_of_a_report(drawn_from: FigureData) -> None:
    (panel, *_) = panels(drawn_from)
    assert picture(panel.views[0], range(2)).startswith("data:image/png")


@pytest.mark.slow
def test_figures_have_no_text_that_was_meant_as_a_formula(tmp_path: Path) -> None:
    root = reported.write(tmp_path / "runs", trials=4)
    data = FigureData(Query(sources=[results.open(root)]))
    for name in ("steps", "forest", "tradeoff", "learning_rate", "training"):
        assert [t.get_text() for t in texts(figures.draw(name, data)) if "$" in t.get_text()] == []
        plt.close("all")


def test_what_is_written_on_a_figure_later_may_be_a_formula(drawn_from: FigureData) -> None:
    axes = figures.draw("forest", drawn_from)
    for text in (axes.set_title("$x^2$"), axes.set_xlabel("$x^2$"), axes.text(0, 0, "$x^2$")):
        assert is_formula(text, text.get_text()) is True


def test_a_figure_of_the_users_may_have_formulas(drawn_from: FigureData) -> None:
    def draw(data: FigureData) -> object:
        del data
        ax = plt.subplots()[1]
        ax.set_xlabel("$x^2$")
        return ax

    axes = figures.draw(figures.FigureKind(name="mine", draw=draw), drawn_from)
    assert is_formula(axes.xaxis.label, "$x^2$") is True


def test_labels_have_no_control_characters() -> None:
    for text in CONTROLS.values():
        group = {"optimizer": text, "technique": json.dumps({"a": text}), "fields.x": text}
        assert SAFE.fullmatch(label(group, group))


# Results


@pytest.mark.parametrize("text", CONTROLS.values(), ids=CONTROLS)
def test_rows_with_such_names_are_refused(tmp_path: Path, text: str) -> None:
    row = {"trial": "t", "study": "s", "experiment": "e", "batch_size": 1, "optimizer": f"x{text}"}
    Store(tmp_path / "runs").commit("e", measurements=[], trials=[row])
    with pytest.raises(ResultsError, match="control characters") as caught:
        results.open(tmp_path / "runs").trials  # noqa: B018
    assert SAFE.fullmatch(f"{caught.value}{caught.value.hint}")
    assert "\n" not in str(caught.value)


def test_names_of_any_language_are_not(tmp_path: Path) -> None:
    names = ["Übergröße", "学习率", "عربي", "😀", "a b|c<d>$e$", "x" * 5000, "\u0301a"]
    rows = [
        {"trial": f"t{i}", "study": "s", "experiment": "e", "batch_size": 1, "optimizer": name}
        for i, name in enumerate(names)
    ]
    Store(tmp_path / "runs").commit("e", measurements=[], trials=rows)
    assert results.open(tmp_path / "runs").trials.optimizer.tolist() == names


@pytest.mark.parametrize("text", CONTROLS.values(), ids=CONTROLS)
def test_imported_names_are_escaped(tmp_path: Path, text: str) -> None:
    group = {"source": f"s{text}", "study": "s", "optimizer": f"x{text}", "batch_size": 1}
    trial = {**group, "trial": f"t{text}", "role": "repeat", "status": "COMPLETE"}
    given = {"sources": [{"source": f"s{text}", "address": "a", "checksum": "c"}]}
    for _ in range(2):
        commit_import(tmp_path / "runs", experiment="e", **given, studies=[group], trials=[trial])
    run = results.open(tmp_path / "runs")
    (row,) = run.trials.to_dict("records")
    assert all(SAFE.fullmatch(row[name]) for name in ("source", "optimizer", "trial"))
    assert run.sources.source.tolist() == [row["source"]]


@pytest.mark.parametrize("text", [t for n, t in CONTROLS.items() if n != "a line"])
def test_an_experiment_with_such_text_is_refused(text: str) -> None:
    for data in (
        {"workload": f"digits-mlp{text}"},
        {"workload": "digits-mlp", "grid": {"optimizer": [f"o.py:X as {text}"]}},
        {"workload": "digits-mlp", f"key{text}": 1},
    ):
        with pytest.raises(ExperimentError, match="control characters") as caught:
            load(data)
        assert SAFE.fullmatch(str(caught.value))


# Tables


@pytest.mark.parametrize("format", ["table", "csv", "json", "latex", "markdown"])
@pytest.mark.parametrize("text", CONTROLS.values(), ids=CONTROLS)
def test_tables_on_a_terminal_hold_no_control_characters(
    monkeypatch: pytest.MonkeyPatch, format: Format, text: str
) -> None:
    # A table itself has styles there.
    monkeypatch.setattr(sys.stdout, "isatty", lambda: format != "table")
    row = {f"a{text}": f"x{text}", "b": [text], "c": {text: text}}
    assert SAFE.fullmatch(render([row], format))


@pytest.mark.parametrize("text", CONTROLS.values(), ids=CONTROLS)
def test_json_for_programs_is_exact_and_csv_is_escaped(text: str) -> None:
    assert json.loads(render([{"a": text}], "json")) == [{"a": text}]
    written = io.StringIO(render([{"a": f"x{text}"}], "csv"), newline="")
    lines = re.split(r"([\n\t])", f"x{text}".replace("\r", "\n"))
    wanted = "".join(part if part in "\n\t" else escaped(part) for part in lines)
    assert list(csv.reader(written))[1] == [wanted]


MARKUP = {
    "a column": "a|b",
    "an escaped column": r"a\|b",
    "a tag": "<script>alert(1)</script>",
    "a picture": "![x](https://example.org/spy.png)",
    "a link": "[click](javascript:alert(1))",
    "an entity": "&lt;script&gt; &#60;b&#62;",
    "a row": "a |\n| --- |\n| b",
}


@pytest.mark.parametrize("text", MARKUP.values(), ids=MARKUP)
def test_markdown_holds_text_alone(text: str) -> None:
    lines = render([{text: text, "n": 1}], "markdown").splitlines()
    assert len(lines) == 3
    for line in lines:
        cells = re.split(r"(?<!\\)(?:\\\\)*\|", line)
        assert len(cells) == 4
        assert not re.search(r"<(?!br>)|\]\(|&(?!lt;|gt;|amp;)", line)
    assert "&amp;lt;" in lines[2] or text != MARKUP["an entity"]


@pytest.mark.parametrize("text", [r"\input{/etc/passwd}", "$x$", "a&b", "#1 %2", "~^_{}", "a\n\nb"])
def test_latex_holds_text_alone(text: str) -> None:
    out = render([{text: text, "n": 1}], "latex")
    line = out.splitlines()[4]
    bare = re.sub(r"\\text(backslash|asciitilde|asciicircum)\{\}|\\[&%$#_{}]", "", line)
    assert re.fullmatch(r"[^\\$#%~^_{}]* & 1 \\\\", bare)
    assert bare.count("&") == 1
    assert len(out.splitlines()) == 7


@pytest.mark.parametrize("text", ["[2em] a", "*", "[", "*[1]"])
def test_a_latex_cell_is_no_argument_of_the_line_before(text: str) -> None:
    rows = render([{"a": text}, {"a": text}], "latex").splitlines()[4:6]
    assert rows == [f"{{{text[0]}}}{text[1:]} \\\\"] * 2


def test_rich_markup_is_printed_as_it_is() -> None:
    text = "[red]x[/red] [link=https://example.org]y[/link] [/]"
    assert text in render([{"a": text}], "table")
    out = io.StringIO()
    display = Display(console=Console(file=out, force_terminal=False, width=200))
    display(Note(text=f"{text}\x1b[31m"))
    assert f"{text}\\x1b[31m" in out.getvalue()


# TensorBoard


@pytest.mark.parametrize("text", CONTROLS.values(), ids=CONTROLS)
def test_tags_and_hyperparameters_hold_no_control_characters(text: str) -> None:
    assert SAFE.fullmatch(tag(f"validation_{text}"))
    assert SAFE.fullmatch(tag(text))
    columns: dict[str, object] = dict.fromkeys(
        ("experiment", "workload", "optimizer", "schedule", "batch_size", "role", EFFECTIVE)
    )
    fields, tuned = json.dumps({text: text}), json.dumps({text: [text]})
    row = {**columns, "fields": fields, "metaparameters": tuned}
    for name, value in hyperparameters(row).items():
        assert SAFE.fullmatch(f"{name}{value}")
