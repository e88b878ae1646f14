"""A user's figure: drawn from its file, on the command line and in Python, with its own options."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot as plt

import batchscale as bs
from analysis import figures
from batchscale.output.errors import CommandError
from results.errors import ResultsError
from tests.batchscale.conftest import Command

FIGURE = '''
"""Critical batch sizes as bars."""

import pandas as pd
from matplotlib import pyplot as plt


def draw(data, *, ax=None, colour="black", most=10):
    ax = ax or plt.figure().add_subplot()
    curves = data.curves[:most]
    ax.bar([curve.label for curve in curves], [len(curve.points) for curve in curves], color=colour)
    return ax


def numbers(data, *, colour="black", most=10):
    return pd.DataFrame({"curve": [curve.label for curve in data.curves[:most]]})


def plain(data):
    figure = plt.figure()
    figure.add_subplot().plot([1, 2])
    return figure


def nothing(data):
    """Forgets to return its axes."""
'''


@pytest.fixture(autouse=True)
def _closed_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture
def file(here: Path) -> Path:
    path = here / "my_figure.py"
    path.write_text(FIGURE)
    return path


@pytest.mark.parametrize("name", ["my_figure.py:draw", "my_figure.py"])
def test_the_command_draws_it_with_its_options(
    command: Command, small: Path, file: Path, name: str
) -> None:
    answer = command("plot", name, small, "--option", "most=1", "--option", "colour=red")
    assert answer.status == 0, answer.err
    assert answer.out == "wrote my_figure.pdf\nwrote my_figure.csv\n"
    rows = list(csv.DictReader(file.with_suffix(".csv").read_text().splitlines()))
    assert len(rows) == 1


@pytest.mark.slow
def test_python_draws_it_from_its_file_or_as_a_function(small: Path, file: Path) -> None:
    ax = bs.plot("my_figure.py:draw", small, most=1)
    assert len(ax.patches) == 1
    run = bs.open(small)
    assert len(run.plot("my_figure.py", where="optimizer = 'sgd'", output="x.png").patches) == 1
    assert file.with_name("x.csv").is_file()

    def lines(data: Any, *, ax: Any = None) -> Any:
        return figures.draw("steps", data, ax=ax)

    assert run.plot(lines, where="optimizer = 'sgd'").lines


def test_a_figure_may_have_no_numbers_and_return_a_matplotlib_figure(
    command: Command, small: Path, file: Path
) -> None:
    answer = command("plot", "my_figure.py:plain", small, "-o", "plain.png")
    assert answer.out == "wrote plain.png\n"
    assert not file.with_name("plain.csv").exists()
    with pytest.raises(ResultsError, match="cannot be drawn on given axes"):
        bs.plot("my_figure.py:plain", small, ax=bs.plot("my_figure.py", small))


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["my_figure.py", "--option", "size=3"], "figure my_figure has no option 'size'",
         "its options: colour, most"),
        (["steps", "--option", "size=3"], "figure steps has no option 'size'",
         "it has no options of its own"),
        (["my_figure.py:circle"], "my_figure.py has no function 'circle'",
         "its functions: draw, numbers, plain, nothing"),
        (["none.py:draw"], "there is no file none.py", "give its path from the current folder"),
        (["my_figure.py:nothing"], "figure nothing returned NoneType",
         "its function must return the matplotlib Axes that it has drawn on"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("file")
def test_what_is_wrong_is_one_line_and_a_hint(
    command: Command, small: Path, words: list[str], error: str, hint: str
) -> None:
    figure, *options = words
    answer = command("plot", figure, small, *options)
    assert answer.status == 1
    assert answer.complaint == [f"error: {error}", f"hint: {hint}"]


def test_an_error_in_it_shows_its_own_lines(command: Command, small: Path, here: Path) -> None:
    (here / "bad.py").write_text("def draw(data):\n    return data.curvs\n")
    answer = command("plot", "bad.py", small)
    assert answer.status == 1
    assert "return data.curvs" in answer.err
    assert "figures/__init__.py" not in answer.err


def test_a_wrong_keyword_is_an_option_that_no_figure_has(small: Path) -> None:
    with pytest.raises(ResultsError, match="figure steps has no option 'wher'"):
        bs.plot("steps", small, wher="width = 64")
    with pytest.raises(TypeError, match="wher"):
        bs.open(small).regimes(wher="width = 64")  # type: ignore[call-arg]
    with pytest.raises(CommandError, match="no SOURCE"):
        bs.plot("steps")


def test_a_new_file_is_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No list names the packaged figures."""
    (tmp_path / "bars.py").write_text(FIGURE)
    (tmp_path / "_shared.py").write_text("raise AssertionError")
    (tmp_path / "shallue").mkdir()
    for name in ("fig12", "fig2", "worst_rate"):
        (tmp_path / "shallue" / f"{name}.py").write_text('"""One\nline. And\n\nmore."""\n')
    monkeypatch.setattr(figures, "_FOLDER", tmp_path)
    assert figures.names() == {
        "bars": "Critical batch sizes as bars",
        "shallue-fig2": "One line. And",
        "shallue-fig12": "One line. And",
        "shallue-worst-rate": "One line. And",
    }
