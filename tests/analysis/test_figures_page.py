"""Figures on every page: legible at each width, in whose style, in which fonts and colours."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from cycler import cycler

import results
from analysis import Curve, curves, figures
from analysis.figure_data import FigureData, Query
from analysis.figures.drawing import page
from analysis.figures.drawing.optimizer_styles import STYLES
from analysis.figures.drawing.style import curve_style
from results.errors import ResultsError
from tests.analysis.legible import faults, figure_of
from tests.analysis.measured import OTHER_DATA

Make = Callable[..., pd.DataFrame]
pytestmark = pytest.mark.usefixtures("closed_figures")

WIDTHS = {"column": 3.4, "two-columns": 7.0, "slide": 5.6}
OURS = [name for name in figures.names() if not name.startswith("shallue-")]


@pytest.fixture(scope="module")
def published() -> FigureData:
    """Three workloads of several optimizers and targets."""
    where = "source LIKE 'shallue%' AND workload <> 'lm1b-lstm'"
    return FigureData(Query(sources=[results.open("published")], where=where))


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", OURS)
def test_everything_can_be_read_at_every_width(
    small: FigureData, name: str, width: str, tmp_path: Path
) -> None:
    data = OTHER_DATA[name](tmp_path / "made") if name in OTHER_DATA else small
    figure = figure_of(figures.draw(name, data, width=width))
    assert faults(figure) == []
    across, tall = figure.get_size_inches()
    if width == "slide":
        assert across >= WIDTHS[width] - 1e-9
        assert across / tall == pytest.approx(16 / 9)
    else:
        assert across == pytest.approx(WIDTHS[width])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width"),
    [("forest", "column"), ("tradeoff", "slide"), ("steps", "two-columns"), ("steps", "slide")],
)
def test_so_can_published_curves(published: FigureData, name: str, width: str) -> None:
    figure = figure_of(figures.draw(name, published, width=width))
    assert faults(figure) == []


@pytest.mark.slow
def test_panels_across_are_as_many_as_the_page_is_wide_enough_for(small: FigureData) -> None:
    def across(width: str) -> int:
        figure = figure_of(figures.draw("training", small, width=width))
        return len({ax.get_subplotspec().colspan.start for ax in figure.axes})  # type: ignore[union-attr]

    assert [across(width) for width in ("3", *WIDTHS)] == [1, 2, 3, 3]


@pytest.mark.slow
def test_a_figure_that_needs_more_width_takes_two_columns(small: FigureData) -> None:
    sizes = {
        name: figures.draw(name, small).get_figure(root=True).get_size_inches()[0]  # type: ignore[union-attr]
        for name in ("steps", "training")
    }
    assert sizes == pytest.approx({"steps": 3.4, "training": 7.0})


@pytest.mark.parametrize(
    ("width", "said"),
    [
        ("columns", "no width is called 'columns'"),
        ("1", "not 1 inches wide"),
        (100, "100 inches"),
        ("nan", "nan inches"),
    ],
)
def test_widths_that_cannot_be(small: FigureData, width: str | float, said: str) -> None:
    with pytest.raises(ResultsError, match=said):
        figures.draw("forest", small, width=width)


@pytest.mark.slow
def test_many_panels_stand_in_rows(plain_curve: Callable[..., Curve]) -> None:
    drawn_curves = [
        plain_curve([1024, 2048, 65536], [64, 32, 17], group={"workload": f"a-workload-{i}"})
        for i in range(7)
    ]
    drawn = figures.draw("steps", drawn_curves, [None] * 7, width="two-columns")
    figure = figure_of(drawn)
    assert len({round(ax.get_position().x0, 2) for ax in figure.axes}) == 3
    assert faults(figure) == []


@pytest.mark.slow
def test_a_figure_taller_than_a_page_is_reported_and_an_impossible_height_refused(
    plain_curve: Callable[..., Curve],
) -> None:
    def drawn(count: int, width: str) -> Any:
        drawn_curves = [
            plain_curve([1, 2, 4], [64, 32, 17], group={"workload": f"w{i}"}) for i in range(count)
        ]
        return figures.draw("tradeoff", drawn_curves, [None] * count, width=width).get_figure(
            root=True
        )

    assert page.longer(drawn(2, "two-columns")) == ""
    assert re.match(r"1\d inches tall, .* --where", page.longer(drawn(5, "column")))
    for name in ("steps", "tradeoff"):
        drawn_curves = [
            plain_curve([1, 2], [64, 32], group={"workload": f"w{i}"}) for i in range(120)
        ]
        with pytest.raises(ResultsError, match="no PDF is more than 200") as caught:
            figures.draw(name, drawn_curves, [None] * 120, width="column")
        assert "--width" in str(caught.value.hint)


@pytest.mark.slow
def test_the_command_says_that_a_figure_is_too_tall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from batchscale.cli import main

    monkeypatch.setattr("analysis.figures.drawing.page._PAGE_HEIGHT", 1.5)
    where = "experiment = 'gallery-goals' AND optimizer = 'momentum' AND batch_size = 16"
    with pytest.raises(SystemExit) as end:
        main(["plot", "search", "own", "--where", where, "-o", str(tmp_path / "tall.png")])
    assert not end.value.code
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note:")]
    assert len(notes) == 1
    assert re.fullmatch(r"note: .*tall.png is 2 inches tall, .* larger --width", notes[0])


@pytest.mark.slow
def test_three_figures_stand_in_the_same_grid(small: FigureData) -> None:
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    names = ("steps", "forest", "tradeoff")
    for name, ax in zip(names, axes, strict=True):
        assert figures.draw(name, small, ax=ax) is ax
    assert [ax for ax in figure.axes if ax.get_label() != "<colorbar>"] == list(axes)
    assert [ax.get_xlabel() for ax in axes] == [
        "batch size (examples)", "batch size (examples)", "examples to target"
    ]  # fmt: skip
    assert figure.get_size_inches().tolist() == [11, 3.2]
    assert faults(figure) == []
    with pytest.raises(ResultsError, match="ax belongs to a figure that exists"):
        figures.draw("steps", small, ax=axes[0], width="slide")


def sizes_of(figure: Any) -> tuple[float, str]:
    return figure.axes[0].xaxis.label.get_fontsize(), figure.axes[0].xaxis.label.get_color()


@pytest.mark.slow
def test_what_the_user_has_set_wins_over_our_style(small: FigureData, tmp_path: Path) -> None:
    from matplotlib import pyplot as plt

    usual = figures.draw("forest", small).get_figure(root=True)
    assert sizes_of(usual) == (8.0, "#333333")
    with plt.style.context({"font.size": 11.0, "axes.labelcolor": "navy", "svg.fonttype": "none"}):
        unstyled = figures.draw("forest", small, width="two-columns").get_figure(root=True)
    assert sizes_of(unstyled) == (11.0, "navy")
    # It is saved as it was drawn, whatever is set then.
    (path,) = figures.save(unstyled, tmp_path / "mine.svg")  # type: ignore[arg-type]
    assert "<text" in path.read_text()
    style_file = tmp_path / "mine.mplstyle"
    style_file.write_text(
        "font.size: 6\nlines.linewidth: 2.4\naxes.prop_cycle: cycler(color=['r'])\n"
    )
    ax = figures.draw("steps", small, style=style_file)
    figure = figure_of(ax)
    assert figure.axes[1].xaxis.label.get_fontsize() == 6.0
    curve = next(line for line in ax.get_lines() if np.size(line.get_xdata()) == 256)
    assert (curve.get_linewidth(), curve.get_color()) == (2.4, "#ff0000")
    named = figures.draw("forest", small, style="grayscale").get_figure(root=True)
    assert sizes_of(named)[1] == "black"


def test_matplotlib_reads_our_style_file() -> None:
    from matplotlib import pyplot as plt

    before = dict(mpl.rcParams)
    with plt.style.context(Path(page.__file__).with_name("paper.mplstyle")):
        assert mpl.rcParams["pdf.fonttype"] == 42
        # Theirs, and ours within it: the same, and a slide has the same type and more dots.
        with page.Page.of("slide").context():
            assert mpl.rcParams["font.size"] == 8
            assert mpl.rcParams["savefig.dpi"] == 540
            with page.Page().context():
                assert mpl.rcParams["font.size"] == 8
    assert {name for name in before if mpl.rcParams[name] != before[name]} == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("font.size: 8\nfont.sise: 9\n", r"line 2: matplotlib has no setting 'font.sise'"),
        ("font.size: large as life\n", "font.size"),
        (None, "no style is called"),
    ],
)
def test_styles_that_cannot_be(
    small: FigureData, tmp_path: Path, text: str | None, said: str
) -> None:
    style_file = tmp_path / "mine.mplstyle"
    if text is not None:
        style_file.write_text(text)
    with pytest.raises(ResultsError, match=said):
        figures.draw("forest", small, style=style_file)


def test_files_embed_their_fonts_and_are_the_same_each_time(
    small: FigureData, tmp_path: Path
) -> None:
    contents = []
    for name in ("one", "two"):
        ax = figures.draw("forest", small)
        (path,) = figures.save(ax, tmp_path / f"{name}.svg")
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]
    assert b"<text" not in contents[0]  # letters are outlines
    (path,) = figures.save(figures.draw("forest", small), tmp_path / "one.pdf")
    content = path.read_bytes()
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL):
        try:
            content += zlib.decompress(stream)
        except zlib.error:
            continue  # not a compressed stream
    fonts = re.findall(rb"/Type /Font\b", content)
    assert fonts
    assert b"/FontFile2" in content
    assert b"/Type3" not in content
    assert b"/Subtype /Type3" not in content


# Machado, Oliveira & Fernandes 2009 (doi:10.1109/TVCG.2009.113), severity 1, in linear RGB.
BLIND = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
    "none": np.eye(3).tolist(),
}


def lab(colours: np.ndarray) -> np.ndarray:
    """CIELAB of linear RGB (n, 3), white D65."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    ratio = colours @ to_xyz.T / to_xyz.sum(1)
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack(
        [116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1
    )


def seen(colours: list[str], blindness: str) -> np.ndarray:
    rgb = np.array([mpl.colors.to_rgb(colour) for colour in colours])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return lab(np.clip(linear @ np.array(BLIND[blindness]).T, 0, 1))


@pytest.mark.parametrize("blindness", BLIND)
def test_everybody_distinguishes_the_first_four_colours(blindness: str) -> None:
    drawn_curves = seen([curve_style(i).colour for i in range(4)], blindness)
    apart = min(float(np.linalg.norm(a - b)) for a, b in combinations(drawn_curves, 2))
    assert apart > LEAST


LEAST = 20.0
"""CIELAB: about ten times what is just noticed side by side."""


def test_red_and_green_of_equal_lightness_would_not_pass() -> None:
    red, green = seen(["#d62728", "#2ca02c"], "deuteranopia")
    blue, orange = seen(["#0173b2", "#d55e00"], "deuteranopia")
    assert np.linalg.norm(blue - orange) > 3 * np.linalg.norm((red - green)[1:2])
    white, black = lab(np.array([[1.0, 1, 1], [0, 0, 0]]))
    assert white == pytest.approx([100, 0, 0], abs=0.01)
    assert black == pytest.approx([0, 0, 0], abs=0.01)


def test_colours_are_those_of_the_style_file_and_more_than_seven_differ() -> None:
    assert [ax.colour for ax in STYLES] == [
        each["color"] for each in page.style_sheet()["axes.prop_cycle"]
    ]
    with mpl.rc_context({"axes.prop_cycle": cycler(color=["red", "blue"])}):
        pairs = {(curve_style(i).colour, curve_style(i).marker) for i in range(10)}
    assert len(pairs) == 10
    assert {colour for colour, _ in pairs} == {"#ff0000", "#0000ff"}


@contextmanager
def _unchanged() -> Iterator[None]:
    before = dict(mpl.rcParams)
    yield
    changed = {name for name in before if mpl.rcParams[name] != before[name]}
    assert changed <= {"backend", "backend_fallback"}


def test_drawing_leaves_the_settings_alone(search: Make) -> None:
    drawn_curves = curves(search())
    with _unchanged():
        figures.draw("forest", drawn_curves, width="slide", style="ggplot")
        with pytest.raises(ResultsError):
            figures.draw("training", drawn_curves, width="slide")
        with page.Page().context():
            assert page.COLUMN == 3.4
