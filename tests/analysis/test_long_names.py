"""Names longer than a figure: on two lines or without their middle, never beyond the edge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text

import results
from analysis import Curve, figures
from analysis.figure_data import FigureData, Query
from analysis.figures.drawing.text_fit import MISSING, distinct, fitted, shortened
from tests.analysis import gallery
from tests.analysis.legible import faults, figure_of
from tests.analysis.long_names import METRIC, OPTIMIZERS, WORKLOAD, long
from tests.analysis.measured import OTHER_DATA, measured

pytestmark = pytest.mark.usefixtures("closed_figures")
PAPER = [name for name in figures.names() if name.startswith("shallue-")]
MANY_PANELS = ("shallue-fig8", "shallue-fig9", "shallue-fig11")
"""Figures of so many panels that fitting all of their titles takes half a minute."""
OURS = [name for name in figures.names() if name not in PAPER]


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    return measured(tmp_path_factory.mktemp("ours") / "runs", long)


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    root = gallery.write(tmp_path_factory.mktemp("paper") / "runs", long)
    return FigureData(Query(sources=[results.open(root)]))


def drawn(name: str, data: FigureData | list[Curve], width: str = "column") -> Figure:
    return figure_of(figures.draw(name, data, width=width))


def test_the_names_are_as_long_as_it_says() -> None:
    assert len(WORKLOAD) >= 80
    assert {len(name) for name in OPTIMIZERS.values()} == {40}
    assert len(METRIC) > 60


@pytest.mark.slow
@pytest.mark.parametrize("name", OURS)
def test_our_figures_hold_them(name: str, ours: FigureData, tmp_path: Path) -> None:
    data = OTHER_DATA[name](tmp_path / "made", long) if name in OTHER_DATA else ours
    assert faults(drawn(name, data)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in MANY_PANELS else name for name in PAPER],
)
def test_the_papers_figures_hold_them(
    name: str, paper: FigureData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FigureData, "regimes", property(lambda data: [None] * len(data.curves)))
    assert faults(drawn(name, paper)) == []


@pytest.mark.slow
@pytest.mark.parametrize("width", ["two-columns", "slide"])
@pytest.mark.parametrize("name", ["steps", "forest", "tradeoff", "training"])
def test_wider_figures_hold_them_too(name: str, width: str, ours: FigureData) -> None:
    assert faults(drawn(name, ours, width)) == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5])
def test_so_do_steps_of_a_csv(count: int, tmp_path: Path) -> None:
    """Of one curve and of more than have room for their legend within the axes."""
    path = tmp_path / "curves.csv"
    names = [f"an_optimizer_of_a_company_with_a_name_{i}_of_40" for i in range(count)]
    rows = [
        f"{name},{WORKLOAD},{2**k},{100 * (1 + 40 * (i + 1) / 2**k):.0f}"
        for i, name in enumerate(names)
        for k in range(10)
    ]
    path.write_text("optimizer,workload,batch_size,steps\n" + "\n".join(rows) + "\n")
    data = FigureData(Query(sources=[results.open(path)]))
    for name in ("steps", "forest", "tradeoff"):
        assert faults(drawn(name, data)) == []


@pytest.mark.slow
def test_a_baseline_of_a_long_name_is_on_its_axis(tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    rows = [
        f"{name},{2**k},{100 * (1 + at / 2**k):.0f}"
        for name, at in (("a_baseline_" * 8, 40), ("another", 200))
        for k in range(10)
    ]
    path.write_text("optimizer,batch_size,steps\n" + "\n".join(rows) + "\n")
    data = FigureData(Query(sources=[results.open(path)], baseline="a_baseline_" * 8))
    for width in ("column", "two-columns"):
        assert faults(drawn("forest", data, width)) == []


@pytest.mark.slow
def test_names_that_fit_are_unchanged(paper_results: Path) -> None:
    data = FigureData(Query(sources=[results.open(paper_results)], where="experiment = 'goals'"))
    figure = drawn("steps", data, "two-columns")
    figure.draw_without_rendering()
    written = [text.get_text() for text in figure.findobj(Text) if text.get_visible()]
    assert not [text for text in written if MISSING in text]
    assert {"sgd", "momentum"} <= set(written)


def letters(most: int) -> Callable[[str], bool]:
    return lambda line: len(line) <= most


@pytest.mark.parametrize(
    ("text", "most", "lines", "said"),
    [
        ("short", 10, 1, "short"),
        ("a_name_of_many_parts", 12, 1, "a_name…_parts"[:6] + "…" + "parts"),
        ("a_name_of_many_parts", 12, 2, "a_name_of_\nmany_parts"),
        ("workload · target < 0.1", 16, 2, "workload\ntarget < 0.1"),
        ("sgd, 6 trials a batch size", 24, 2, "sgd,\n6 trials a batch size"),
        ("unbreakablename", 8, 2, "unbreak…\nlename"),
        ("one line\nand another", 11, 2, "one line\nand another"),
        ("one line\nand another", 8, 2, "one lin…\nanother"),
        ("", 8, 1, ""),
    ],
)
def test_a_name_is_broken_where_its_parts_end(text: str, most: int, lines: int, said: str) -> None:
    assert fitted(text, letters(most), lines) == said


@given(text=st.text("abc_, ·-", max_size=60), most=st.integers(4, 30), lines=st.integers(1, 3))
def test_what_is_fitted_fits(text: str, most: int, lines: int) -> None:
    made = fitted(text, letters(most), lines).split("\n")
    assert len(made) <= lines
    assert all(len(line) <= most for line in made)
    assert len(shortened(text, most)) <= most or len(text) <= most


def test_names_that_differ_still_differ() -> None:
    texts = ["a_common_beginning_first_a_common_end", "a_common_beginning_second_a_common_end"]
    assert distinct(texts, letters(16)) == ["…first…", "…second…"]
    assert distinct(texts, letters(60)) == texts
    same = ["x" * 30 + str(i) * 40 + "y" * 30 for i in range(3)]
    assert len(set(distinct(same, letters(12)))) == 3
    far = [f"{'x' * i}{'z' * 30}{'x' * (9 - i)}" for i in range(4)]
    assert len(set(distinct([*far, far[0]], letters(8)))) == 4
