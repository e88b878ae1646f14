"""Figures: what is drawn, legibly, and the files written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.scale import LogTransform

from analysis import Curve, Regimes, curves, figures, regimes
from analysis.fit.knee import theta
from results.errors import ResultsError
from tests.analysis.legible import faults, figure_of, texts
from tests.marks import quick

Make = Callable[..., pd.DataFrame]
pytestmark = pytest.mark.usefixtures("closed_figures")


@pytest.fixture(scope="module")
def odd(search: Make, studies_of: Make) -> list[Curve]:
    """Three optimizers: one rises at its end, one never gets there at batch size 1, one is on an
    edge of its space."""
    sgd = search("sgd", params=theta(60, 20), sizes=tuple(2**i for i in range(12)))
    last = sgd["batch_size"] >= 1024
    sgd.loc[last, ["steps_to_target", "last_miss"]] *= 1.6
    momentum = search("momentum", params=theta(50, 200), seed=1)
    first = momentum["batch_size"] == 1
    momentum.loc[first, ["steps_to_target", "last_miss"]] = np.nan
    momentum.loc[first, ["status", "stop_reason"]] = ["COMPLETE", "budget"]
    trials = pd.concat([sgd, momentum, search("adam", params=theta(40, 90, 2.0), seed=2)])
    studies = studies_of(trials)
    space = '{"learning_rate": {"log": [0.1, 10]}}'
    studies.loc[studies["study"] == "adam-16", "search_space"] = space
    return curves(trials, studies=studies)


@pytest.fixture(scope="module")
def fits(odd: list[Curve]) -> list[Regimes]:
    return [regimes(curve) for curve in odd]


@pytest.mark.slow
def test_steps_says_what_it_shows(odd: list[Curve], fits: list[Regimes]) -> None:
    ax = figures.draw("steps", odd, fits)
    written = texts(ax)
    for expected in (
        "sgd",
        "momentum",
        "adam",
        "perfect scaling",
        "critical batch size, 90 %",
        "ends of regimes, 90 %",
        "target not reached",
        "optimum on edge of space",
        "digits-softmax · validation error < 0.04 · best of 16",
        "steps to target",
        "batch size (examples)",
    ):
        assert expected in written
    assert {ax.get_xscale(), ax.get_yscale()} == {"log"}
    for axis in (ax.xaxis, ax.yaxis):
        transform = axis.get_transform()
        assert isinstance(transform, LogTransform)
        assert transform.base == 2


@pytest.mark.slow
@pytest.mark.parametrize("width", ["column", "slide"])
@pytest.mark.parametrize("name", ["steps", "tradeoff", "shallue-fig1"])
def test_23_curves_have_no_covered_or_cut_label(
    plain_curve: Callable[..., Curve], name: str, width: str
) -> None:
    sizes = [2.0**i for i in range(4)]
    many = [
        plain_curve(
            sizes, [100 * (1 + 3 * i / size) for size in sizes],
            group={"optimizer": f"an_optimizer_with_a_name_{i}", "workload": "digits-mlp"},
            label=str(i),
        )
        for i in range(23)
    ]  # fmt: skip
    figure = figure_of(figures.draw(name, many, [None] * 23, width=width))
    assert faults(figure) == []
    written = texts(figure.axes[0])
    assert {f"an optimizer with a name {i}" for i in range(23)} <= {
        text.replace("\n", " ") for text in written
    }


def test_every_line_has_another_colour_marker_and_dashes() -> None:
    from analysis.figures.drawing.optimizer_styles import STYLES
    from analysis.figures.drawing.style import curve_style

    assert len({item.colour for item in STYLES}) == len(STYLES)
    assert len({item.marker for item in STYLES}) == len(STYLES)
    assert len({str(item.line) for item in STYLES}) == len(STYLES)
    pairs = {(curve_style(i).colour, curve_style(i).marker) for i in range(3 * len(STYLES))}
    assert len(pairs) == 3 * len(STYLES)


def test_regimes_that_are_only_bounded_are_hatched(plain_curve: Callable[..., Curve]) -> None:
    from analysis.fit.reference_lines import regime_spans

    sizes = [2.0**i for i in range(12)]
    wide = regimes(plain_curve(sizes, [1e4 / size for size in sizes[:-1]] + [5.2]))
    assert wide.maximal_parallelism_from.high is None
    assert wide.perfect_scaling_until.high is None
    assert not any(item.sure for item in regime_spans(wide) if item.regime == 2)
    rng = np.random.default_rng(0)
    steps = [100 * (1 + 40 / size) * np.exp(rng.normal(0, 0.02)) for size in sizes]
    whole = regime_spans(regimes(plain_curve(sizes, steps)))
    assert [item.regime for item in whole] == [0, 1, 2]
    assert all(item.sure for item in whole)
    assert whole[0].high == whole[1].low
    assert whole[-1].high == sizes[-1]


@pytest.mark.slow
def test_workloads_get_panels_and_not_a_single_pair_of_axes(search: Make) -> None:
    from matplotlib import pyplot as plt

    trials = search()
    other = search("adam", seed=1, workload="mnist-simple-cnn")
    two = curves(pd.concat([trials, other]))
    figure = figure_of(figures.draw("steps", two))
    assert len(figure.axes) == 4  # a panel and a strip each
    with pytest.raises(ResultsError, match="2 panels do not fit on one pair"):
        figures.draw("steps", two, ax=plt.figure().add_subplot())


def test_on_axes_of_the_caller(odd: list[Curve], fits: list[Regimes]) -> None:
    from matplotlib import pyplot as plt

    ax = plt.figure().add_subplot()
    assert figures.draw("steps", odd, fits, ax=ax) is ax
    assert "critical batch size, 90 %" in texts(ax)
    other = plt.figure().add_subplot()
    assert figures.draw("learning_rate", odd[:1], fits[:1], ax=other) is other
    assert "linear rule" in texts(other)


def test_learning_rate_has_both_rules_through_the_points(
    odd: list[Curve], fits: list[Regimes]
) -> None:
    written = texts(figures.draw("learning_rate", odd, fits))
    assert {"linear rule", "square-root rule", "critical batch size"} <= set(written)
    frame = figures.numbers("learning_rate", odd, fits)
    sgd = frame[frame["curve"] == "sgd"]
    ratio = sgd["linear_rule"] / sgd["batch_size"]
    assert ratio.max() == pytest.approx(ratio.min())
    ratio = sgd["square_root_rule"] / np.sqrt(sgd["batch_size"])
    assert ratio.max() == pytest.approx(ratio.min())
    assert (sgd["low"] <= sgd["effective_learning_rate"]).all()
    assert len(frame) == 12 + 10 + 11  # none where nothing reached the target


def test_a_curve_too_short_for_regimes_is_drawn_without(search: Make) -> None:
    (curve,) = curves(search(sizes=(1, 2)))
    written = texts(figures.draw("steps", [curve]))
    assert "too few batch sizes" in written


@pytest.mark.parametrize("suffix", quick([".png", ".pdf", ".svg"], 1))
def test_files(odd: list[Curve], fits: list[Regimes], tmp_path: Path, suffix: str) -> None:
    ax = figures.draw("steps", odd, fits)
    numbers = figures.numbers("steps", odd, fits)
    picture, table = figures.save(ax, tmp_path / f"steps{suffix}", numbers)
    assert picture.stat().st_size > 5_000
    read = pd.read_csv(table)
    assert read["steps"].isna().sum() == 1
    assert read["censored"].sum() == 1
    assert len(read) == sum(len(curve.points) for curve in odd)


@pytest.mark.slow
def test_what_cannot_be(odd: list[Curve], tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no figure is called 'step'") as caught:
        figures.draw("step", odd)
    assert caught.value.hint == "did you mean steps?"
    with pytest.raises(ResultsError, match=r"cannot write a figure as \.gif"):
        figures.save(figures.draw("steps", odd[:1]), tmp_path / "steps.gif")
    with pytest.raises(ResultsError, match=r"cannot write .*steps\.pdf"):
        figures.save(figures.draw("steps", odd[:1]), tmp_path / "nowhere" / "steps.pdf")
    with pytest.raises(ResultsError, match="no curve"):
        figures.draw("steps", [])
    assert "steps" in figures.names()
