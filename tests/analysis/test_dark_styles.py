"""Figures in a style with another ground, dark paper first: what is written can be read there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from analysis import figures
from analysis.figure_data import FigureData
from analysis.figures.drawing import colours
from analysis.figures.drawing.page import Page
from tests.analysis.legible import figure_of
from tests.analysis.measured import OTHER_DATA

pytestmark = pytest.mark.usefixtures("closed_figures")
OURS = [name for name in figures.names() if not name.startswith("shallue-")]
PAPER = ["shallue-fig1", "shallue-fig11"]
LEAST = 3.0


def pale(drawn: Axes) -> list[str]:
    """Words and lines of too little contrast to what is behind them, and light halos on dark."""
    pale_items, figure = [], figure_of(drawn)
    figure.draw_without_rendering()
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if not text.get_visible() or not text.get_text().strip():
            continue
        behind = behind_of(text, figure)
        if colours.contrast(text.get_color(), behind) < LEAST:
            pale_items.append(
                f"{text.get_text()!r} in {to_hex(text.get_color())} on {to_hex(behind)}"
            )
        for effect in text.get_path_effects():
            if isinstance(effect, withStroke):
                halo: Any = effect._gc["foreground"]  # type: ignore[attr-defined]
                if to_hex(halo) != to_hex(behind):
                    pale_items.append(f"the halo of {text.get_text()!r} is {halo}")
    for ax in figure.axes:
        for line in ax.get_lines():
            if line.get_zorder() > 2 and len(line.get_xdata()) > 1:  # type: ignore[arg-type]
                ratio = colours.contrast(line.get_color(), ax.get_facecolor()[:3])
                if ratio < 1.5:
                    pale_items.append(f"a line of {line.get_color()}")
    return pale_items


def behind_of(text: Text, figure: Figure) -> Any:
    """The ground that is behind a word: of axes within them, else of the page."""
    middle = text.get_window_extent().get_points().mean(0)
    inside = isinstance(text.axes, Axes) and text.axes.bbox.contains(*middle)
    assert not inside or text.axes is not None
    return (text.axes if inside and text.axes else figure).get_facecolor()[:3]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OURS, *PAPER])
def test_text_and_lines_are_visible_on_dark_paper(
    small: FigureData, name: str, tmp_path: Path
) -> None:
    data = OTHER_DATA[name](tmp_path / "made") if name in OTHER_DATA else small
    assert pale(figures.draw(name, data, style="dark_background")) == []


@pytest.mark.parametrize("style", ["ggplot", "Solarize_Light2"])
def test_so_they_are_on_tinted_paper(small: FigureData, style: str) -> None:
    assert pale(figures.draw("tradeoff", small, style=style)) == []


def test_dark_ink_on_dark_paper_would_not_pass(
    small: FigureData, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, usual in (("ink", "#333333"), ("faint", "#404040"), ("ground", "white")):
        for module in ("tradeoff", "drawing.marks", "drawing.page"):
            monkeypatch.setattr(f"analysis.figures.{module}.{name}", lambda usual=usual: usual,
                                raising=False)  # fmt: skip
    pale_items = pale(figures.draw("tradeoff", small, style="dark_background"))
    assert any("on #000000" in each for each in pale_items)


def test_in_our_style_colours_are_what_they_are_named() -> None:
    with Page().context():
        assert colours.ground() == "white"
        assert (colours.ink(), colours.faint()) == (colours.INK, colours.FAINT)
        assert [colours.grey(usual_grey) for usual_grey in ("#ededed", "#cfcfcf")] == [
            "#ededed",
            "#cfcfcf",
        ]
        assert colours.grid_colour() == "#e6e6e6"
        assert colours.visible("#016297") == "#016297"
        assert colours.tint("#ff0000", 0.25) == (1.0, 0.75, 0.75)


def test_greys_keep_their_place_between_ground_and_ink() -> None:
    assert colours.contrast("black", "white") == pytest.approx(21)
    assert colours.contrast("#777777", "white") == pytest.approx(4.48, abs=0.01)
    with mpl.rc_context({"axes.facecolor": "black", "text.color": "white"}):
        assert colours.dark()
        # 18 of the 204 from white to the ink, of 255
        assert colours.grey("#ededed") == to_hex((18 / 204,) * 3)
        assert colours.tint("#ff0000", 0.25) == (0.25, 0.0, 0.0)
        assert colours.contrast(colours.visible("#016297"), "black") >= 6
    with mpl.rc_context({"axes.facecolor": "none", "figure.facecolor": "#102030"}):
        assert colours.ground() == "#102030"
    # A grid that is as strong as what is drawn over it is taken back, a faint one kept.
    with mpl.rc_context({"axes.facecolor": "black", "text.color": "white", "grid.color": "white"}):
        assert colours.grid_colour() == to_hex((25 / 204,) * 3)
    with mpl.rc_context({"axes.facecolor": "#e5e5e5", "grid.color": "white"}):
        assert to_hex(colours.grid_colour()) == "#ffffff"
