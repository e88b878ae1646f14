"""Crossovers: where the better of two curves changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from analysis import Crossover, Curve, crossovers, figures, regimes
from analysis.fit.crossovers import changes_between, signs_of
from analysis.fit.knee import log_steps, theta
from batchscale.output import regime_table
from results.errors import ResultsError
from tests.analysis.legible import faults, figure_of
from validation import nqm
from validation.crossovers import Pairs, draw
from validation.scenarios import BY_NAME

Plain = Callable[..., Curve]
SIZES = [2**i for i in range(3, 13)]
FIRST, SECOND = theta(900, 100, 1.2), theta(300, 600, 1.2)


def curve(
    plain: Plain, name: str, params: np.ndarray, noise: float = 0.04, **more: object
) -> Curve:
    rng = np.random.default_rng(len(name))
    steps = np.exp(log_steps(np.log(SIZES), params) + rng.normal(0, noise, len(SIZES)))
    return plain(SIZES, steps, **{"label": name, "group": {"optimizer": name}, **more})


def pair(*curves: Curve) -> Crossover:
    ((i, j, answer),) = crossovers(curves, [regimes(each) for each in curves])
    assert (i, j) == (0, 1)
    return answer


def meeting(first: np.ndarray, second: np.ndarray) -> float:
    at = np.log(np.geomspace(SIZES[0], SIZES[-1], 100_001))
    apart = log_steps(at, first) - log_steps(at, second)
    return float(np.exp(at[np.flatnonzero(np.diff(np.sign(apart)))[0]]))


def test_knees_that_cross(plain_curve: Plain) -> None:
    answer = pair(curve(plain_curve, "sgd", FIRST), curve(plain_curve, "adam", SECOND))
    (at,) = answer.at
    assert at.reached
    assert at.holds(meeting(FIRST, SECOND))
    assert answer.better == ("sgd", "adam")
    assert "sgd takes fewer steps below, adam above" in answer.sentence
    # The interval is where the band holds 1.
    within = (answer.low <= 1) & (answer.high >= 1)
    assert answer.batch_sizes[within].min() > at.low
    assert answer.batch_sizes[within].max() < at.high


def test_where_steps_rise_again_crossovers_are_found_beyond(plain_curve: Plain) -> None:
    """They cross at 1,200, beyond the quickest batch size of one: knees would meet at 420."""
    rng, sizes = np.random.default_rng(0), 2.0 ** np.arange(3, 14)
    for _ in range(5):
        first = 500 * (1 + 300 / sizes) * (1 + sizes / 3000)
        made = [
            plain_curve(sizes, steps * np.exp(rng.normal(0, 0.03, 11)), label=name)
            for name, steps in (("a", first), ("b", 700 * (1 + 300 / sizes)))
        ]
        answer = pair(*made)
        (at,) = answer.at
        assert at.holds(1200)
        assert at.low is not None
        assert at.high is not None
        assert 200 < at.low < at.high < 4000
        assert answer.better == ("a", "b")
        assert answer.batch_sizes[-1] == pytest.approx(8192)


def test_without_noise_it_is_exact(plain_curve: Plain) -> None:
    curves = [
        curve(plain_curve, "sgd", FIRST, noise=0.0), curve(plain_curve, "adam", SECOND, noise=0.0)
    ]  # fmt: skip
    (at,) = pair(*curves).at
    assert at.value == pytest.approx(meeting(FIRST, SECOND), rel=1e-3)
    assert pair(*reversed(curves)).at[0].value == pytest.approx(at.value, rel=1e-3)


@pytest.mark.slow
def test_the_exact_quadratic_models_average_and_heavy_ball(plain_curve: Plain) -> None:
    """Where the two exact curves cross, from the exact curves alone."""
    sizes = [2**i for i in range(4, 15)]
    exact = {rule: [each.steps for each in nqm.tune(sizes, rule)] for rule in ("ema", "heavy_ball")}
    steps = {rule: np.array(each, dtype=float) for rule, each in exact.items()}
    apart = np.log(steps["ema"] / steps["heavy_ball"])
    after = int(np.argmax(apart > 0))
    assert after > 0
    rng = np.random.default_rng(2)
    curves = [
        plain_curve(sizes, each * np.exp(rng.normal(0, 0.05, len(sizes))), label=rule)
        for rule, each in steps.items()
    ]
    answer = pair(*curves)
    (at,) = answer.at
    assert answer.better == ("ema", "heavy_ball")
    assert at.low is not None
    assert at.high is not None
    assert at.low < sizes[after]
    assert at.high > sizes[after - 1]


def test_a_curve_and_itself_do_not_cross(plain_curve: Plain) -> None:
    answer = pair(curve(plain_curve, "sgd", FIRST), curve(plain_curve, "adam", FIRST))
    assert answer.at == ()
    assert "cannot be told apart" in answer.sentence
    assert answer.to_dict()["at"] == []


def test_of_parallel_curves_the_sentence_names_the_better(plain_curve: Plain) -> None:
    half = FIRST - np.array([np.log(2.0), 0, 0, 0])
    answer = pair(curve(plain_curve, "sgd", FIRST), curve(plain_curve, "adam", half))
    assert answer.at == ()
    assert answer.better == ("adam",)
    assert "adam takes fewer steps than sgd" in answer.sentence


def test_signs_between_which_nothing_is_sure_are_not_counted() -> None:
    x = np.arange(7.0)
    middle = np.array([-2.0, -1.0, 0.5, -0.5, 1.0, 2.0, 3.0])
    sign = signs_of(middle - 0.9, middle + 0.9)
    signs, ((value, low, high),) = changes_between(x, middle, sign, sign)
    assert signs == [-1, 1]
    assert (low, high) == (1.0, 4.0)
    assert low < value < high


def test_only_curves_of_one_question_are_compared(plain_curve: Plain) -> None:
    curves = [
        curve(plain_curve, name, FIRST, group={"optimizer": name, "workload": name})
        for name in ("sgd", "adam")
    ]
    with pytest.raises(ResultsError, match="no two fitted curves have the same workload"):
        crossovers(curves, [regimes(each) for each in curves])


def test_the_table_has_a_sentence_a_pair(plain_curve: Plain) -> None:
    curves = [curve(plain_curve, "sgd", FIRST), curve(plain_curve, "adam", SECOND)]
    fits = [regimes(each) for each in curves]
    answers = [fit.to_dict() | {"crossovers": []} for fit in fits]
    answers[0]["crossovers"] = [answer.to_dict() for _, _, answer in crossovers(curves, fits)]
    table = regime_table.regimes(answers, "table")
    assert table.count("The curves of sgd and adam cross at batch size") == 1
    assert "crossovers" in regime_table.regimes(answers, "csv").splitlines()[0].split(",")


@pytest.mark.slow
@pytest.mark.usefixtures("closed_figures")
def test_the_figure_marks_the_crossover(plain_curve: Plain) -> None:
    curves = [curve(plain_curve, "sgd", FIRST), curve(plain_curve, "adam", SECOND)]
    ax = figures.draw("crossover", curves)
    figure = figure_of(ax)
    assert faults(figure) == []
    (at,) = pair(*curves).at
    (mark,) = [line for line in ax.lines if line.get_marker() == "D"]
    assert np.asarray(mark.get_xdata()).tolist() == [at.value]
    frame = figures.numbers("crossover", curves)
    assert frame["batch_size"].tolist() == SIZES
    assert frame["crossover_low"].unique() == pytest.approx([at.low])
    assert (frame["fitted_low"] < frame["fitted_high"]).all()


def test_made_pairs_that_touch_do() -> None:
    first, second, _ = draw("touching", np.linspace(0, 6.3, 2001), np.random.default_rng(0))
    assert (first - second).min() == pytest.approx(0, abs=1e-3)


@pytest.mark.slow
def test_few_crossovers_are_false_and_intervals_cover() -> None:
    rows = {
        kind: BY_NAME["crossovers"].row(Pairs(kind=kind, noise=0.05), replicates=25)
        for kind in ("identical", "parallel", "crossing")
    }
    assert rows["identical"]["claimed"] + rows["parallel"]["claimed"] <= 3  # type: ignore[operator]
    assert rows["crossing"]["claimed"] >= 23  # type: ignore[operator]
    assert rows["crossing"]["covered"] >= 19  # type: ignore[operator]
