"""The figures of Shallue et al. 2019 from any results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import results
from analysis import Curve, figures
from analysis.curves.limits import Limit
from analysis.figure_data import FigureData, Query
from analysis.figures.drawing.page import Page
from analysis.figures.paper.lines import published_lines
from analysis.figures.paper.panel_figure import draw_panels
from analysis.figures.paper.panels import Dot, Line, Panel, PanelFigure, normalized
from results.errors import ResultsError
from tests.analysis import gallery
from tests.analysis.legible import faults, figure_of, texts
from tests.marks import quick

pytestmark = pytest.mark.usefixtures("closed_figures")
NAMES = [name for name in figures.names() if name.startswith("shallue-")]


@pytest.fixture(autouse=True)
def unfitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without regimes, which take most of the time: the reference numbers have perfect scaling."""
    monkeypatch.setattr(FigureData, "regimes", property(lambda data: [None] * len(data.curves)))


@pytest.fixture(scope="module")
def every(paper_results: Path) -> FigureData:
    return FigureData(Query(sources=[results.open(paper_results)]))


def of(paper_results: Path, where: str, **options: Any) -> FigureData:
    return FigureData(Query(sources=[results.open(paper_results)], where=where, **options))


def test_every_figure_of_the_paper_is_registered() -> None:
    best = ["shallue-best-learning-rate", "shallue-best-momentum"]
    assert [*best, *(f"shallue-fig{i}" for i in range(1, 12))] == NAMES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("shallue-fig1", None),
        ("shallue-fig7", "column"),
        ("shallue-fig10", None),
        ("shallue-fig8", "slide"),
    ],
)
def test_all_that_is_written_can_be_read(every: FigureData, name: str, width: str | None) -> None:
    figure = figure_of(figures.draw(name, every, width=width))
    assert faults(figure) == []


@pytest.mark.slow
def test_a_panel_is_a_workload_and_the_published_curve_stands_beside(paper_results: Path) -> None:
    data = of(paper_results, "experiment IN ('stopping', 'softmax')")
    ax = figures.draw("shallue-fig1", data)
    figure = figure_of(ax)
    assert len(figure.axes) == 2
    written = texts(ax)
    assert {"(a) digits-softmax", "(b) cifar10-resnet8", "validation error < 0.3"} <= {
        line for text in written for line in text.split("\n")
    }
    assert "Shallue et al. 2019" in written
    frame = figures.numbers("shallue-fig1", data)
    beside = frame[frame["source"].notna()]
    recorded = results.open("published").trials
    recorded = recorded[
        (recorded["workload"] == "cifar10-resnet8") & (recorded["optimizer"] == "sgd")
    ]
    assert (
        beside["value"].tolist() == recorded.sort_values("batch_size")["steps_to_target"].tolist()
    )
    measured = frame[frame["source"].isna() & (frame["panel"] == "cifar10-resnet8")]
    (curve,) = (c for c in data.curves if c.group["workload"] == "cifar10-resnet8")
    assert measured["value"].tolist() == [point.steps for point in curve.points]
    assert measured["low"].tolist() == [point.bar[0] for point in curve.points if point.bar]


@pytest.mark.slow
def test_goals_are_recomputed_and_those_that_cannot_be_have_a_reason(
    paper_results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from results.targets.target import Target

    data = of(paper_results, "experiment = 'goals' AND optimizer = 'sgd'")
    goals = [Target.parse(text) for text in (*gallery.GOALS[1:], "validation_loss < 1")]
    monkeypatch.setattr(FigureData, "goals", property(lambda _: goals))
    frame = figures.numbers("shallue-fig2", data)
    for goal in gallery.GOALS[1:]:
        (curve,) = data.at(goal).trials_of_curves
        line = frame[frame["target"] == goal]
        assert line["value"].tolist() == [point.steps for point in curve.points]
    lost = frame[frame["batch_size"].isna()]
    assert lost["target"].tolist() == ["validation_loss < 1"]
    assert "validation_loss" in lost["note"].iloc[0]
    assert any("1 goal is left out" in text for text in texts(figures.draw("shallue-fig2", data)))


def test_models_are_over_a_batch_size_that_all_share(paper_results: Path) -> None:
    data = of(paper_results, "experiment IN ('widths', 'goals', 'softmax')")
    frame = figures.numbers("shallue-fig3", data)
    assert set(frame["panel"]) == {
        "digits-mlp, sgd, by width",
        "digits-mlp, momentum, by width",
        "digits, by model",
    }
    for _, line in frame.groupby(["panel", "line"]):
        at = line["normalized_at"].iloc[0]
        unit = line.loc[line["batch_size"] == at, "steps"].item()
        assert line["value"].tolist() == pytest.approx((line["steps"] / unit).tolist())
        assert line["perfect_scaling"].tolist() == pytest.approx((at / line["batch_size"]).tolist())


@pytest.mark.slow
def test_optimizers_data_sets_and_subsets(every: FigureData, paper_results: Path) -> None:
    four = figures.numbers("shallue-fig4", every)
    lines = set(four.loc[four["panel"].str.contains("64"), "line"])
    assert lines == {"sgd", "momentum"}  # nesterov was held to another goal
    five = figures.numbers("shallue-fig5", every)
    assert set(five["line"]) == {"fashion8, < 0.3", "digits, < 0.06"}
    six = figures.numbers("shallue-fig6", every)
    assert set(six["line"]) == {
        "examples 300, < 0.1",
        "examples 600, < 0.1",
        "whole data set, < 0.06",
    }
    named = of(paper_results, "experiment = 'widths'", by=("width",))
    with pytest.raises(ResultsError, match="no subsets of one data set"):
        figures.numbers("shallue-fig6", named)
    wide = of(paper_results, "experiment IN ('widths', 'goals')", by=("width",))
    assert set(figures.numbers("shallue-fig6", wide)["curve_width"]) == {16, 64}


def test_label_smoothing_is_by_value_within_the_search(every: FigureData) -> None:
    frame = figures.numbers("shallue-fig7", every)
    best = frame[frame["measure"] == "best validation error"]
    assert best.groupby("line")["value"].min().round(6).tolist() == [0.03, 0.024]
    steps = frame[frame["measure"] == "steps to target"]
    trials = every.trials
    row: Any
    for row in steps.itertuples():
        chosen = trials[
            (trials["label_smoothing"] == float(row.line.split()[-1]))
            & (trials["batch_size"] == row.batch_size)
            & (trials["status"] == "COMPLETE")
        ].sort_values("index")
        assert row.value == chosen["steps_to_target"].iloc[: int(row.trials)].min()


@pytest.mark.slow
def test_a_search_under_budgets(every: FigureData, paper_results: Path) -> None:
    where = "experiment = 'goals' AND optimizer = 'momentum'"
    limits = tuple(map(Limit.parse, ("150 steps", "20000 examples")))
    data = of(paper_results, where, under=limits)
    frame = figures.numbers("shallue-fig9", data)
    assert set(frame["row"]) == {"150 steps", "20,000 examples"}
    trials = data.trials.set_index("trial")
    row: Any
    for row in frame.itertuples():
        last = 150 if "steps" in row.row else 20_000 // row.batch_size
        assert (row.became == "reached") == (trials.loc[row.trial, "steps_to_target"] <= last)
    assert frame["batch_size"].nunique() == 4
    free = figures.numbers("shallue-fig9", data.under())
    assert len(set(free["row"])) == 2
    ten = figures.numbers("shallue-fig10", every)
    assert set(ten["row"]) == {"width 64, < 0.06", "width 16, < 0.1"}


def test_a_search_under_a_budget_has_rows_for_each_target(tmp_path: Path) -> None:
    rows = [f"8,{rate},0.9,loss < {goal},{40 / goal}" for goal in (0.2, 0.1) for rate in (1, 2)]
    (tmp_path / "two.csv").write_text("\n".join(["batch_size,lr,momentum,target,steps", *rows]))
    query = Query(sources=[tmp_path / "two.csv"], under=[Limit.parse("500 steps")])
    steps = figures.numbers("shallue-fig9", FigureData(query)).groupby("row")["steps"]
    assert steps.max().tolist() == [400, 200]
    titles = [f"two, loss < {goal}, 2 trials a batch size" for goal in (0.2, 0.1)]
    assert {*titles} <= {*texts(figures.draw("rates", FigureData(query)))}


def test_the_best_metric_under_budgets_has_gaps_where_trials_were_stopped(
    paper_results: Path,
) -> None:
    limits = (Limit.parse("40 steps"), Limit.parse("20 epochs"))
    data = of(paper_results, "experiment = 'stopping'", under=limits)
    frame = figures.numbers("shallue-fig11", data)
    assert set(frame["under"]) == {"40 steps", "20 epochs"}
    missing = frame["value"].isna()
    assert missing.any()
    assert not missing.all()
    assert frame.loc[missing, "note"].str.contains("stopped at the target").all()
    assert (frame.loc[missing, "unknown_trials"] > 0).all()
    assert any(
        "points are not known" in text for text in texts(figures.draw("shallue-fig11", data))
    )


def test_best_metaparameters_are_those_of_the_best_trial(every: FigureData) -> None:
    trials = every.trials.set_index("trial")
    points = {point.trial: point for curve in every.curves for point in curve.points}
    rates = figures.numbers("shallue-best-learning-rate", every)
    want = {trials.loc[name, "learning_rate"] for name in points if name}
    assert set(rates["value"].dropna()) == want
    momenta = figures.numbers("shallue-best-momentum", every)
    recorded = momenta[momenta["momentum"].notna()]
    assert recorded["value"].tolist() == pytest.approx((1 - recorded["momentum"]).tolist())
    assert set(recorded["line"]) == {"momentum", "nesterov"}
    rates = figures.numbers("shallue-fig8", every)
    assert rates.equals(figures.numbers("learning_rate", every))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shallue-fig2", "no workload with steps to several goals"),
        ("shallue-fig3", "no two models of one data set"),
        ("shallue-fig4", "no two optimizers on one workload"),
        ("shallue-fig5", "no model on two data sets"),
        ("shallue-fig6", "no subsets of one data set"),
        ("shallue-fig7", "no two values of label smoothing"),
        ("shallue-fig9", "no trials with a learning rate and a momentum"),
        ("shallue-fig10", "no trials with a learning rate and a momentum"),
        ("shallue-best-momentum", "no best trial has a momentum"),
    ],
)
def test_where_there_is_nothing_to_draw_it_says_what_it_needs(
    paper_results: Path, name: str, said: str
) -> None:
    with pytest.raises(ResultsError, match=said) as caught:
        figures.draw(name, of(paper_results, "experiment = 'softmax'"))
    assert str(caught.value.hint).startswith("this figure needs")


@pytest.mark.slow
def test_without_measurements_there_is_no_best_metric(tmp_path: Path) -> None:
    file = tmp_path / "steps.csv"
    file.write_text("batch_size,steps\n8,100\n16,50\n32,30\n")
    data = FigureData(Query(sources=[results.open(file)], under=(Limit.parse("9 steps"),)))
    with pytest.raises(ResultsError, match="no best metric under 9 steps is known") as caught:
        figures.draw("shallue-fig11", data)
    assert "measurements" in str(caught.value.hint)
    for name in ("shallue-fig8", "shallue-best-learning-rate"):
        with pytest.raises(ResultsError, match="learning rate"):
            figures.draw(name, data)
    # Steps beyond a budget were not reached.
    late = figures.numbers("shallue-fig1", data.under(Limit.parse("60 steps")))
    assert late["value"].fillna(0).tolist() == [0, 50, 30]
    published = FigureData(Query(sources=[results.open("published").where("workload = 'resnet'")]))
    with pytest.raises(ResultsError, match=r"^no best metric is known: no trials of a search$"):
        figures.draw("shallue-fig11", published)


def line(values: list[float | None], label: str = "a") -> Line:
    sizes = [2**i for i in range(len(values))]
    dots = tuple(
        Dot(batch_size=size, value=value, reached=value is not None)
        for size, value in zip(sizes, values, strict=True)
    )
    return Line(label=label, dots=dots)


def test_no_line_is_drawn_through_a_gap() -> None:
    panel = Panel(title="t", lines=(line([64, 32, None, 8, 4]),), measure="steps to target")
    with Page().context():
        ax = draw_panels(PanelFigure(panels=[panel]), Page())
    joined = [
        (a[0], b[0])
        for drawn in ax.lines
        for a, b in pairwise(np.asarray(drawn.get_xydata(), dtype=float))
        if np.isfinite([a, b]).all()
    ]
    assert (1, 2) in joined
    assert (8, 16) in joined
    assert not any(a <= 2 and b >= 8 for a, b in joined)
    hollow = [drawn for drawn in ax.lines if drawn.get_markerfacecolor() == "white"]
    assert [np.asarray(drawn.get_xdata()).tolist() for drawn in hollow] == [[4]]
    assert "target not reached" in texts(ax)


@pytest.mark.parametrize("width", quick(["column", "slide"], 1))
def test_panels_of_other_lines_have_legends_of_their_own_beneath_them(width: str) -> None:
    def panel(row: int, values: list[list[float | None]]) -> Panel:
        named = tuple(line(each, f"{row}, line {i}") for i, each in enumerate(values))
        return Panel(title="t", note="n", lines=named, measure="m", counted=False, row=row)

    full: list[list[float | None]] = [[1, 9] * 6, [9, 1] * 6, [5] * 12]
    page = Page.of(width)
    with page.context():
        drawn = draw_panels(PanelFigure(panels=[panel(0, full), panel(1, full)]), page)
        page.finish()
    figure = figure_of(drawn)
    assert faults(figure) == []
    assert [bool(ax.get_legend()) for ax in figure.axes] == [True, True]


def test_panels_without_a_shared_batch_size_are_not_normalized() -> None:
    both = (line([64, None, 16], "a"), line([None, 32, 24], "b"))
    panel = normalized(Panel(title="t", lines=both, measure="steps"))
    assert panel is not None
    assert panel.measure == "steps / those at B = 4"
    assert panel.lines[0].values() == {1: 4.0, 4: 1.0}
    apart = (line([64, None], "a"), line([None, 32], "b"))
    assert normalized(Panel(title="t", lines=apart, measure="steps")) is None


@pytest.mark.slow
def test_many_panels_make_rows_and_columns_that_fit(plain_curve: Callable[..., Curve]) -> None:
    from matplotlib import pyplot as plt

    def across(n: int) -> int:
        panels = [Panel(title=str(i), lines=(line([4, 2]),), measure="m") for i in range(n)]
        figure = figure_of(draw_panels(PanelFigure(panels=panels), Page()))
        return len({ax.get_subplotspec().colspan.start for ax in figure.axes})  # type: ignore[union-attr]

    with Page().context():
        assert [across(n) for n in (1, 2, 3, 4, 5, 8, 9)] == [1, 2, 3, 2, 3, 4, 3]
    two = [
        plain_curve([1, 2, 4], [64, 32, 17], group={"workload": name, "optimizer": "sgd"})
        for name in "ab"
    ]
    ax = plt.figure().add_subplot()
    with pytest.raises(ResultsError, match="2 panels do not fit on one pair of axes"):
        figures.draw("shallue-fig1", two, ax=ax)
    frame = figures.numbers("shallue-fig1", two)
    assert frame.groupby("panel")["value"].apply(list).tolist() == [[64, 32, 17]] * 2
    assert pd.isna(frame["source"]).all()


def test_where_no_published_curve_has_momentum_nesterovs_stands_for_it() -> None:
    published = FigureData(Query(sources=["published"], where="workload = 'cifar10-resnet8'"))
    (theirs, _) = curves = published.curves
    assert theirs.group["optimizer"] == "nesterov"
    ours = replace(theirs, group={**theirs.group, "source": None, "optimizer": "momentum"})
    (line,) = published_lines([("ours", ours)], curves)
    assert line.label == "Shallue et al. 2019, nesterov"
    assert line.beside == "ours"
    exact = replace(theirs, group={**theirs.group, "optimizer": "momentum"})
    (line,) = published_lines([("ours", ours)], [*curves, exact])
    assert line.label == "Shallue et al. 2019"
