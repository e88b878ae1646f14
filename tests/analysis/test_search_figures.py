"""The figures of a search: its budget, its rates, and where its trials lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import Curve, curves, figures
from analysis.curves.runs import shares
from analysis.fit.search_limits import search_trend
from results.errors import ResultsError
from tests.analysis.legible import figure_of, texts

Make = Callable[..., pd.DataFrame]
pytestmark = pytest.mark.usefixtures("closed_figures")
SIZES = (1, 8, 64, 512, 1024)


@pytest.fixture(scope="module")
def fates(search: Make) -> pd.DataFrame:
    """Trials of which some diverged and some never arrived, with a momentum; all trained on."""
    trials = search("momentum", sizes=SIZES, n=24, keep=None)
    rng = np.random.default_rng(1)
    trials["momentum"] = 1 - 10 ** rng.uniform(-3, -0.1, len(trials))
    dead = trials["learning_rate"] > 3
    trials.loc[dead, ["status", "stop_reason", "steps_run"]] = ("INFEASIBLE", "diverged", 5)
    lost = trials["learning_rate"] < 0.003
    trials.loc[lost, "stop_reason"] = "budget"
    trials.loc[dead | lost, ["steps_to_target", "last_miss"]] = np.nan
    return trials


@pytest.fixture(scope="module")
def off(fates: pd.DataFrame) -> list[Curve]:
    return curves(fates)


@pytest.fixture(scope="module")
def kept(search: Make) -> list[Curve]:
    both = [search("sgd", n=24, sizes=SIZES), search("adam", n=24, sizes=SIZES, seed=1)]
    return curves(pd.concat(both))


def test_the_budget_says_what_it_shows(kept: list[Curve]) -> None:
    written = texts(figures.draw("budget", kept))
    for expected in (
        "sgd, N = 24",
        "adam, N = 24",
        "geometric mean",
        "half of the trials",
        "5% more steps",
        "batch size (examples)",
        "expected best of n / best of N",
    ):
        assert expected in written
    frame = figures.numbers("budget", kept)
    assert set(frame["curve"]) == {"sgd", "adam"}
    assert frame["n"].max() == 24
    last = frame[frame["n"] == 24]
    assert (last["ratio"] == 1).all()
    assert last["expected_best"].tolist() == [p.steps for c in kept for p in c.points]
    at = kept[0].points[0].budget
    assert at is not None
    first = frame[(frame["curve"] == "sgd") & (frame["batch_size"] == 1)]
    assert first["n"].tolist() == list(at.n)


def test_limits_are_beneath_where_the_dimensions_are_known(
    search: Make, studies_of: Make, kept: list[Curve]
) -> None:
    trials = search("sgd", n=24, sizes=SIZES)
    (known,) = curves(trials, studies=studies_of(trials))
    ax = figures.draw("budget", [known, kept[1]])
    written = texts(ax)
    expected = ("best of N / its limit", "geometric mean; beneath, trend", "limit not known")
    assert {*expected, "batch size"} <= {*written}
    figure = figure_of(ax)
    assert len(figure.axes) == 5  # and the bar of colours
    trend = search_trend(known)
    assert trend is not None
    frame = figures.numbers("budget", [known, kept[1]])
    last = frame[frame["n"] == 24]
    first = last[last["curve"] == known.label]
    assert first["over_limit_trend"].tolist() == trend.excess(SIZES).tolist()
    for row, (_, limit) in zip(first.itertuples(), trend.limits, strict=True):
        found = (row.over_limit, row.over_limit_high, row.over_limit_low)
        assert limit.ends == pytest.approx([1 / float(str(each)) for each in found])
    assert last.loc[last["curve"] == kept[1].label, "over_limit"].isna().all()
    # The caller's axes have room for one kind of panel.
    from matplotlib import pyplot as plt

    own = plt.figure(layout="constrained").add_subplot()
    assert "best of N / its limit" not in texts(figures.draw("budget", [known], ax=own))


def test_where_there_is_no_budget_it_says_why(search: Make) -> None:
    with pytest.raises(ResultsError, match="no budget check") as caught:
        figures.draw("budget", curves(search(search="points")))
    assert "points" in str(caught.value.hint)
    repeats = pd.DataFrame({"batch_size": [8, 16], "steps_to_target": [9, 5], "role": "repeat"})
    with pytest.raises(ResultsError, match="no budget check") as caught:
        figures.draw("budget", curves(repeats.assign(status="COMPLETE")))
    assert "needs trials of a search" in str(caught.value.hint)


def test_rates_are_of_the_trials_that_ran(off: list[Curve], fates: pd.DataFrame) -> None:
    written = texts(figures.draw("rates", off))
    expected = {"target reached", "not reached", "infeasible", "share of trials that ran"}
    assert expected <= {text.replace("\n", " ") for text in written}
    assert "dominated: not known" not in written
    frame = figures.numbers("rates", off)
    (drawn,) = off
    row: Any
    for row, point in zip(frame.itertuples(), drawn.points, strict=True):
        ran = fates[fates["batch_size"] == row.batch_size]
        assert point.ran <= row.ran == len(ran)
        assert row.infeasible == pytest.approx(ran["status"].eq("INFEASIBLE").mean())
        assert row.reached == pytest.approx(ran["steps_to_target"].notna().mean())
        assert row.dominated == 0
        assert row.reached + row.not_reached + row.infeasible == pytest.approx(1)
    assert shares(()) == {}


def test_dominated_trials_are_a_separate_class(kept: list[Curve]) -> None:
    assert "dominated: not known" in texts(figures.draw("rates", kept))
    frame = figures.numbers("rates", kept)
    assert (frame["dominated"] > 0.5).all()
    assert (frame["not_reached"] == 0).all()


def test_the_search_shows_every_trial_once_and_the_best(
    off: list[Curve], fates: pd.DataFrame
) -> None:
    ax = figures.draw("search", off)
    figure = figure_of(ax)
    assert len(figure.axes) == len(SIZES)
    written = texts(ax)
    for expected in (
        "target reached",
        "infeasible",
        "best",
        "equal effective learning rate",
        "1 - momentum",
        "batch size 64",
    ):
        assert expected in written
    frame = figures.numbers("search", off)
    assert frame["trial"].is_unique
    assert frame.groupby("batch_size")["best"].sum().tolist() == [1] * len(SIZES)
    recorded = fates.set_index("trial").loc[frame["trial"]]
    rate = frame["learning_rate"] / (1 - frame["momentum"])
    assert frame["effective_learning_rate"].tolist() == pytest.approx(rate.tolist())
    diverged = recorded["status"].eq("INFEASIBLE").to_numpy()
    assert (frame["became"].eq("infeasible").to_numpy() == diverged).all()
    best = frame[frame["best"]].set_index("batch_size")["steps"]
    assert best.tolist() == frame.groupby("batch_size")["steps"].min().tolist()


def test_equal_effective_rates_are_straight_lines_through_the_panel(off: list[Curve]) -> None:
    ax = figures.draw("search", off)
    lines = [line for line in ax.get_lines() if line.get_linestyle() == "-"]
    rates = []
    for line in lines:
        x, y = (np.asarray(data, dtype=float) for data in line.get_data())
        assert x[0] / y[0] == pytest.approx(x[1] / y[1])
        rates.append(x[0] / y[0])
    assert np.log10(sorted(rates)) == pytest.approx(np.round(np.log10(sorted(rates))))
    assert len(rates) >= 4


def test_curves_without_a_momentum_have_no_such_figure(kept: list[Curve], off: list[Curve]) -> None:
    with pytest.raises(ResultsError, match="no trials with a learning rate and a momentum"):
        figures.draw("search", kept)
    figure = figure_of(figures.draw("search", [*kept, *off]))
    assert len(figure.axes) == len(SIZES)
    assert len(figures.numbers("search", [*kept, *off])["curve"].unique()) == 3


def test_a_pair_of_axes_holds_a_single_panel(kept: list[Curve], off: list[Curve]) -> None:
    from matplotlib import pyplot as plt

    for name, drawn_curves in (("budget", kept), ("rates", kept), ("search", off)):
        ax = plt.figure().add_subplot()
        with pytest.raises(ResultsError, match="do not fit on one pair of axes"):
            figures.draw(name, drawn_curves, ax=ax)
    for name in ("budget", "rates"):
        ax = plt.figure(layout="constrained").add_subplot()
        assert figures.draw(name, kept[:1], ax=ax) is ax
    ax = plt.figure().add_subplot()
    (curve,) = off
    assert figures.draw("search", [replace(curve, points=curve.points[:1])], ax=ax) is ax


@pytest.mark.slow
def test_edges_and_repeats_stand_in_the_steps_figure_and_its_numbers(
    search: Make, studies_of: Make, tmp_path: Path
) -> None:
    trials = search()
    here = trials[trials["batch_size"] == 8]
    best = here.iloc[int(here["steps_to_target"].argmin())]
    repeated = pd.DataFrame([best] * 5).assign(
        role="repeat", trial=list("abcde"), steps_to_target=best["steps_to_target"] * 1.2
    )
    studies = studies_of(trials)
    low, high = '{"learning_rate": {"log": [0.1, 10]}}', best["learning_rate"] * 1.01
    studies.loc[studies["batch_size"] == 16, "search_space"] = low
    studies.loc[studies["batch_size"] == 8, "search_space"] = (
        f'{{"learning_rate": {{"log": [0.001, {high}]}}}}'
    )
    (curve,) = curves(pd.concat([trials, repeated]), studies=studies)
    written = texts(figures.draw("steps", [curve]))
    assert "repeats of the best: median, 94%" in [text.replace("\n", " ") for text in written]
    assert "optimum on edge of space" in written
    frame = figures.numbers("steps", [curve]).set_index("batch_size")
    assert frame.loc[8, "repeats"] == 5
    assert frame["repeats_median"][8] == pytest.approx(frame["steps"][8] * 1.2)
    assert frame.loc[8, "edges"] == f"learning_rate at its upper end {high:g}"
    assert frame.loc[64, "edges"] == ""
    picture, table = figures.save(figures.draw("steps", [curve]), tmp_path / "steps.png", frame)
    assert picture.is_file()
    assert "half_trials_ratio" in pd.read_csv(table)


def test_a_near_best_trial_on_the_edge_gets_a_dotted_ring_and_a_note(
    search: Make, studies_of: Make
) -> None:
    trials = search(keep=None)
    here = trials[trials["batch_size"] == 8].sort_values("steps_to_target")
    first, second = here["learning_rate"].iloc[:2]
    trials.loc[here.index[1], "steps_to_target"] = here["steps_to_target"].iloc[0] * 1.05
    bounds = [second * 0.99, 10.0] if second < first else [1e-3, second * 1.01]
    assert abs(np.log(first / second)) > 0.05 * abs(np.log(bounds[1] / bounds[0]))
    studies = studies_of(trials)
    studies.loc[studies["batch_size"] == 8, "search_space"] = (
        f'{{"learning_rate": {{"log": [{bounds[0]}, {bounds[1]}]}}}}'
    )
    (curve,) = curves(trials, studies=studies)
    at = curve.points[3]
    assert [edge.verdict for edge in at.edges] == ["near"]
    assert curve.to_frame()["edges"].iloc[3].endswith("(near-best)")
    assert any(note.startswith("near-best trials sit on the edge") for note in curve.notes)
    assert "near-best on edge of space" in texts(figures.draw("steps", [curve]))
    assert "near-best on edge of space" in texts(figures.draw("learning_rate", [curve]))


def test_edges_are_those_of_the_enlarged_space(search: Make, studies_of: Make) -> None:
    trials = search(sizes=(8, 16, 32))
    narrow = '{"learning_rate": {"log": [0.1, 10]}}'
    old = studies_of(trials).assign(search_space=narrow, time=pd.Timestamp("2026-01-01", tz="UTC"))
    new = studies_of(trials).assign(time=pd.Timestamp("2026-02-01", tz="UTC"))
    (edge,) = curves(trials, studies=old)
    (enlarged_curve,) = curves(trials, studies=pd.concat([new, old.assign(experiment="other")]))
    assert any(point.edges for point in edge.points)
    assert not any(point.edges for point in enlarged_curve.points)
