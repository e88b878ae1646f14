"""Forest, trade-off, collapse, training curves, landscape and map: what they show, and their
numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import results
from analysis import Interval, compare, curves, figures
from analysis.figure_data import FigureData, Query
from analysis.figures.learning_rate import growth
from analysis.fit.comparisons import ratio_text
from analysis.formatting import interval
from results.errors import ResultsError
from tests.analysis.legible import figure_of, texts
from tests.analysis.measured import GOAL, SIZES, TRIALS
from tests.analysis.reference import hold

pytestmark = pytest.mark.usefixtures("closed_figures")
DIGITS = Query(where="experiment = 'digits'", baseline="sgd")


@pytest.fixture(scope="module")
def packaged() -> FigureData:
    """The packaged sweep of three optimizers on digits."""
    return FigureData(replace(DIGITS, sources=[results.open("own")]))


@pytest.mark.parametrize("name", ["forest", "tradeoff", "landscape"])
def test_numbers_of_the_packaged_sweep_are_as_committed(packaged: FigureData, name: str) -> None:
    hold(name, figures.numbers(name, packaged))


def test_numbers_of_training_curves_are_those_recorded(small: FigureData) -> None:
    """Each evaluation of each trial, and what became of it; a panel of them as committed."""
    frame = figures.numbers("training", small)
    hold("training", frame[frame["trial"].str.startswith("sgd-4096-")])
    columns = ["trial", "step", "validation_error"]
    (source,) = small.sources
    recorded = source.measurements
    mine, theirs = (
        rows[columns].sort_values(columns[:2], ignore_index=True) for rows in (frame, recorded)
    )
    pd.testing.assert_frame_equal(mine, theirs, check_dtype=False)
    studies = frame["curve"] + "-" + frame["batch_size"].astype(str)
    assert (frame["trial"].str.rpartition("-")[0] == studies).all()
    fates = {"target": "reached", "budget": "not reached", "diverged": "infeasible"}
    became = dict(zip(source.trials["trial"], source.trials["stop_reason"].map(fates), strict=True))
    assert dict(zip(frame["trial"], frame["became"], strict=True)) == became
    points = [point for curve in small.curves for point in curve.points]
    assert {*frame["trial"][frame["best"]]} == {p.trial for p in points if not p.censored}


@pytest.mark.slow
def test_steps_below_1_are_called_relative(packaged: FigureData) -> None:
    """Nobody takes a part of a step: a source that does not say how many examples an epoch has."""
    gnn = FigureData(Query(sources=[results.open("published").where("workload = 'gnn'")]))
    for name, what in (("steps", {"steps"}), ("tradeoff", {"steps", "samples"})):
        assert {f"{item} to target, relative" for item in what} <= set(
            texts(figures.draw(name, gnn))
        )
        assert not any(text.endswith("relative") for text in texts(figures.draw(name, packaged)))


def test_the_forest_has_a_row_a_curve_with_its_number(packaged: FigureData) -> None:
    plain = FigureData(replace(DIGITS, sources=packaged.sources, baseline=None))
    plain.curves, plain.regimes = packaged.curves, packaged.regimes
    said = texts(figures.draw("forest", plain))
    for fit in packaged.regimes:
        assert fit is not None
        assert {fit.label, interval(*fit.critical_batch_size.ends)} <= set(said)
    frame = figures.numbers("forest", plain)
    assert len(frame) == 5 * len(packaged.curves)
    # From the smallest critical batch size on.
    critical = frame[frame["quantity"] == "critical_batch_size"]["value"]
    assert critical.dropna().is_monotonic_increasing
    assert frame["ratio_value"].isna().all()


def test_ratios_of_the_forest_are_the_comparisons(packaged: FigureData) -> None:
    ax = figures.draw("forest", packaged)
    figure = figure_of(ax)
    assert len(figure.axes) == 2
    said = texts(ax)
    assert "baseline" in said
    assert "critical batch size over sgd's" in said
    frame = figures.numbers("forest", packaged).set_index(["curve", "quantity"])
    for item in compare(packaged.curves, packaged.regimes, "sgd"):
        if item is None:
            continue
        assert ratio_text(item.ratios["critical_batch_size"]) in said
        for name, ratio in item.ratios.items():
            row: Any = frame.loc[(item.label, name)]
            fit = [row[f"ratio_{end}"] for end in ("value", "low", "high")]
            expected = [np.nan if x is None else x for x in ratio.to_dict().values()]
            assert fit == pytest.approx(expected, nan_ok=True)
    # Where there is room for one, the ratios.
    narrow = figure_of(figures.draw("forest", packaged, width="column"))
    assert len(narrow.axes) == 1


def test_open_ends_of_the_forest_are_arrows_and_bounds(plain_curve: Callable[..., Any]) -> None:
    sizes = [2.0**i for i in range(8)]
    bent = plain_curve(sizes, [900 / size * 1.01 ** (i % 3) for i, size in enumerate(sizes)])
    short = plain_curve([1, 2], [9.0, 5.0], label="short", group={"optimizer": "short"})
    data = FigureData.of([bent, short])
    ax = figures.draw("forest", data)
    said = texts(ax)
    low = data.regimes[0].critical_batch_size.low  # type: ignore[union-attr]
    assert low is not None
    assert any(text.startswith("≥ ") for text in said)
    assert "too few batch sizes" in said
    assert {">"} <= {line.get_marker() for line in ax.get_lines()}
    with pytest.raises(ResultsError, match="no regimes to compare"):
        figures.draw("forest", [short])


def test_the_tradeoff_goes_through_its_points(packaged: FigureData) -> None:
    frame = figures.numbers("tradeoff", packaged)
    for curve, fit in zip(packaged.curves, packaged.regimes, strict=True):
        assert fit is not None
        rows = frame[frame["curve"] == curve.label]
        assert rows["examples"].tolist() == [p.steps * p.batch_size for p in curve.points]  # type: ignore[operator]
        assert rows["fitted_examples"].tolist() == pytest.approx(
            (rows["fitted_steps"] * rows["batch_size"]).tolist()
        )
        assert rows["fitted_steps"].is_monotonic_decreasing
    said = texts(figures.draw("tradeoff", packaged))
    assert {"examples to target", "steps to target", "critical batch size (in brackets)"} <= {*said}
    assert "30" in said


def test_at_the_critical_batch_size_of_mccandlish_both_are_doubled(
    plain_curve: Callable[..., Any],
) -> None:
    sizes = [2.0**i for i in range(4)]  # few: k is 1
    (fit,) = FigureData.of([plain_curve(sizes, [100 * (1 + 3 / size) for size in sizes])]).regimes
    assert fit is not None
    steps = fit.steps([fit.best["critical_batch_size"]])[0]
    assert steps == pytest.approx(2 * fit.best["min_steps"], rel=1e-6)


def test_training_curves_show_every_trial_the_best_and_its_bracket(small: FigureData) -> None:
    ax = figures.draw("training", small)
    figure = figure_of(ax)
    assert len(figure.axes) == 2 * len(SIZES)
    said = texts(ax)
    for expected in (
        "best trial",
        "last miss to first hit",
        "infeasible",
        "target",
        "validation error",
        "sgd, B = 128",
    ):
        assert expected in said
    assert said.count("target not reached") == 1
    frame = figures.numbers("training", small)
    assert frame["trial"].nunique() == 2 * len(SIZES) * TRIALS
    for curve in small.curves:
        for point in curve.points:
            best = frame[frame["trial"] == point.trial]
            if point.censored:
                assert len(best) == 0
                continue
            assert best["best"].all()
            last = best["validation_error"].to_numpy()
            assert last[-1] < GOAL <= last[-2]
            assert best["step"].tolist()[-2:] == [point.last_miss, point.steps]
    # Those that diverged are crosses within the frame, however far their metric went.
    crosses = [
        line for item in figure.axes for line in item.get_lines() if line.get_marker() == "x"
    ]
    dead = {t.trial for c in small.curves for p in c.points for t in p.trial_outcomes
            if t.became == "infeasible"}  # fmt: skip
    assert len(crosses) == len(dead) > 0
    assert ax.get_ylim()[1] < 2
    assert all(np.ravel(line.get_ydata())[0] <= ax.get_ylim()[1] for line in crosses)


def test_of_many_batch_sizes_those_that_divide_them_evenly(
    small: FigureData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analysis.figures.over_training.training.MOST", 5)
    frame = figures.numbers("training", small)
    assert frame.groupby("curve")["batch_size"].unique().map(list).tolist() == [[8, 4096]] * 2
    monkeypatch.setattr("analysis.figures.over_training.training.MOST", 1)
    with pytest.raises(ResultsError, match="2 curves are too many") as caught:
        figures.draw("training", small)
    assert "--where" in str(caught.value.hint)


def test_training_curves_are_drawn_against_examples(
    small: FigureData, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = [
        figures.draw("training", small, options={"against": each}) for each in ("steps", "data")
    ]
    panels = [ax.get_figure(root=True).axes for ax in drawn]  # type: ignore[union-attr]
    sizes = [p.batch_size for curve in small.curves for p in curve.points]
    for size, by_step, by_example in zip(sizes, *panels, strict=True):
        for step, example in zip(by_step.lines, by_example.lines, strict=True):
            if len(step.get_xdata()) > 2:  # not the target
                assert np.allclose(np.asarray(step.get_xdata()) * size, example.get_xdata())
    assert "examples" in texts(drawn[1])
    with pytest.raises(ResultsError, match="against cannot be 'epochs'"):
        figures.draw("training", small, options={"against": "epochs"})
    (curve, *_), ramp = small.curves, json.dumps({"ramp": "x2 at 0.5"})
    grown = replace(curve, group={**curve.group, "technique": ramp})
    monkeypatch.setattr(type(small), "curves", property(lambda _: [grown]))
    with pytest.raises(ResultsError, match="the batch size of these curves grows"):
        figures.numbers("training", small, options={"against": "data"})


def test_training_curves_need_measurements(packaged: FigureData, small: FigureData) -> None:
    from matplotlib import pyplot as plt

    with pytest.raises(ResultsError, match="no training curves to draw"):
        figures.draw("training", packaged.only("optimizer = 'sgd'"))
    with pytest.raises(ResultsError, match="no training curves to draw"):
        figures.draw("training", packaged.curves)
    with pytest.raises(ResultsError, match="6 batch sizes do not fit on one pair"):
        figures.draw("training", small, ax=plt.figure().add_subplot())
    ax = plt.figure().add_subplot()
    item = small.only("optimizer = 'sgd' AND batch_size = 128")
    assert figures.draw("training", item, ax=ax) is ax


def test_the_landscape_has_every_trial_that_was_not_cut_off(small: FigureData) -> None:
    said = texts(figures.draw("landscape", small))
    assert {"learning rate", "effective learning rate", "best", "infeasible"} <= {*said}
    frame = figures.numbers("landscape", small)
    assert len(frame) == 2 * len(SIZES) * TRIALS
    hits = frame[frame["became"] == "reached"]
    assert hits["steps"].notna().all()
    least = hits.groupby(["curve", "batch_size"], sort=False)["steps"].min()
    assert len(least) == 2 * len(SIZES) - 1  # at one batch size nothing reached it
    assert frame[frame["best"]]["steps"].tolist() == least.tolist()
    trials = small.trials.set_index("trial").loc[frame["trial"]]
    assert frame["rate"].tolist() == pytest.approx(trials["effective_learning_rate"].tolist())
    table = pd.DataFrame({"batch_size": [1, 2], "steps_to_target": [9.0, 5.0]})
    steps = curves(table.assign(role="repeat", status="COMPLETE"))
    with pytest.raises(ResultsError, match="no learning rates"):
        figures.draw("landscape", steps)


def test_a_cell_of_the_map_is_an_octave_with_the_fewest_steps_or_a_mark(small: FigureData) -> None:
    frame = figures.numbers("rate_map", small)
    trials = figures.numbers("landscape", small)
    octaves = (2.0 ** np.floor(np.log2(trials["rate"]))).rename("rate_from")
    fewest = trials.groupby(["curve", "batch_size", octaves])["steps"].min()
    cells = frame.set_index(["curve", "batch_size", "rate_from"]).sort_index()
    pd.testing.assert_series_equal(cells["steps"], fewest)
    assert cells["trials"].sum() == len(trials)
    assert {*cells.loc[fewest.isna(), "became"]} == {"not reached", "infeasible"}
    assert {*cells.loc[fewest.notna(), "became"]} == {"reached"}
    best = trials.loc[trials["best"], ["curve", "batch_size", "rate"]]
    joined = frame.dropna(subset="best_rate").merge(best, on=["curve", "batch_size"])
    assert len(joined)
    assert (joined["best_rate"] == joined["rate"]).all()
    said = texts(figures.draw("rate_map", small))
    assert {"steps to target", "linear rule", "square-root rule", "infeasible"} <= {*said}
    steps = curves(pd.DataFrame({"batch_size": [1, 2], "steps_to_target": [9.0, 5.0],
                                 "role": "repeat", "status": "COMPLETE"}))  # fmt: skip
    with pytest.raises(ResultsError, match="no learning rates"):
        figures.draw("rate_map", steps)


def test_the_power_of_rates_on_a_rule_is_that_of_the_rule(small: FigureData) -> None:
    points = [replace(p, rates=(0.01 * p.batch_size**0.5,)) for p in small.curves[0].points]
    ruled = replace(small.curves[0], points=tuple(points))
    assert growth(ruled, None) == pytest.approx([0.5] * 3, abs=5e-3)
    assert np.isnan(growth(replace(ruled, points=ruled.points[:2]), None)).all()


def test_the_interval_of_the_power_covers_up_to_the_critical_batch_size(small: FigureData) -> None:
    """Best rates that scatter by 30 %, in proportion to the batch size up to 16, then constant: up
    to the critical batch size the power is 1, over all batch sizes it is less."""
    (curve, fit), rng = small.pairs[0], np.random.default_rng(4)
    assert fit is not None
    fit = replace(fit, critical_batch_size=Interval(value=16.0))
    sizes, held, of_all = 2 ** np.arange(9), 0, []
    for _ in range(400):
        rates = np.minimum(sizes, 16) * np.exp(rng.normal(0, 0.3, len(sizes)))
        rated = replace(curve, points=tuple(
            replace(curve.points[0], batch_size=int(size), rates=(float(rate),))
            for size, rate in zip(sizes, rates, strict=True)
        ))  # fmt: skip
        _, low, high = growth(rated, fit)
        held += low <= 1 <= high
        of_all.append(growth(rated, None)[0])
    assert 0.86 <= held / 400 <= 0.94
    assert np.mean(of_all) < 0.8


def test_exact_curves_collapse_on_the_line(plain_curve: Callable[..., Any]) -> None:
    sizes = [2.0**i for i in range(16)]
    knees = {"sgd": (50.0, 200.0), "adam": (9.0, 64.0)}
    exact = [
        plain_curve(sizes, [fewest * (1 + knee / size) for size in sizes], label=name,
                    group={"optimizer": name})
        for name, (fewest, knee) in knees.items()
    ]  # fmt: skip
    frame = figures.numbers("collapse", exact)
    assert frame["curve"].unique().tolist() == list(knees)
    line = 1 + 1 / frame["relative_batch_size"]
    assert frame["relative_steps"].tolist() == pytest.approx(line.tolist(), rel=0.05)
    assert {"sgd", "adam", "1 + critical batch size / batch size"} <= {
        *texts(figures.draw("collapse", exact))
    }
    with pytest.raises(ResultsError, match="no curve has both a critical batch size"):
        figures.draw("collapse", [plain_curve(sizes[:4], [900 / size for size in sizes[:4]])])
