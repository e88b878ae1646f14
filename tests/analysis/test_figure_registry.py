"""Figures are found by their files: each packaged one keeps the contract, and a file adds one."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from analysis import Curve, figures
from analysis.figures.drawing.style import log2_axis, log10_axis
from results.errors import ResultsError
from tests.analysis.legible import faults, figure_of

pytestmark = pytest.mark.usefixtures("closed_figures")

NEW = '''
"""Steps as points. They are not joined."""

import pandas as pd

from analysis.figures.drawing.style import log2_axis


def draw(data, *, page, colour="black"):
    ((ax,),) = page.panels([1], "panel", 3.0, 2.0)
    frame = numbers(data)
    ax.set(xscale="log", xlabel="batch size", ylabel="steps")
    ax.plot(frame["batch_size"], frame["steps"], "o", color=colour)
    log2_axis(ax.xaxis, *ax.get_xlim())
    return ax


def numbers(data, colour="black"):
    rows = [(p.batch_size, p.steps) for curve in data.curves for p in curve.points]
    return pd.DataFrame(rows, columns=["batch_size", "steps"])
'''


@pytest.mark.parametrize("name", figures.names())
def test_every_packaged_figure_keeps_the_contract(name: str) -> None:
    kind = figures.get(name)
    parameters = inspect.signature(kind.draw).parameters
    assert [*parameters][:2] == ["data", "page"]
    assert all(
        parameters[other].kind is inspect.Parameter.KEYWORD_ONLY for other in [*parameters][1:]
    )
    assert kind.numbers is not None
    assert [*inspect.signature(kind.numbers).parameters] == ["data", *kind.options]
    description = figures.names()[name]
    assert description
    assert not description.endswith(".")


@pytest.mark.parametrize(
    ("axis", "low", "high", "numbers"),
    [
        (log2_axis, 24, 31, [24, 26, 28, 30]),
        (log2_axis, 24, 24, [24]),
        (log2_axis, 5, 17, [8, 16]),
        (log10_axis, 0.7, 1.7, [1, 1.5]),
        (log10_axis, 0.7, 2.1, [1, 2]),
    ],
)
def test_an_axis_has_a_scale(
    axis: Callable[..., None], low: float, high: float, numbers: list[float]
) -> None:
    ax = Figure().subplots()
    axis(ax.xaxis, low, high)
    assert list(ax.get_xticks()) == pytest.approx(numbers)


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a figure whose file was put beside the packaged ones."""
    (tmp_path / "points.py").write_text(NEW)
    packaged = figures.files()
    monkeypatch.setattr(
        figures, "files", lambda: {**packaged, "points": figures._FOLDER / "points.py"}
    )
    monkeypatch.setattr(figures, "__path__", [*figures.__path__, str(tmp_path)])
    yield "points"
    sys.modules.pop("analysis.figures.points", None)


def test_one_file_is_a_new_figure(added: str, plain_curve: Callable[..., Curve]) -> None:
    curves = [plain_curve([1, 2, 4], [64, 32, 17])]
    ax = figures.draw(added, curves, width="two-columns", options={"colour": "red"})
    figure = figure_of(ax)
    assert figure.get_size_inches()[0] == 7
    assert faults(figure) == []
    assert ax.lines[0].get_color() == "red"
    assert figures.numbers(added, curves)["steps"].tolist() == [64, 32, 17]
    with pytest.raises(ResultsError, match="figure points has no option 'color'"):
        figures.draw(added, curves, options={"color": "red"})
