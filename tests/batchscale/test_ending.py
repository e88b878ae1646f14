"""What a sweep ends with: its curves in characters, and its finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

import results
from analysis.figure_data import FigureData, Query
from analysis.fit.interval import Interval
from batchscale.output.ending import ending, finding
from results.errors import ResultsError
from results.reader import Results


@pytest.fixture(scope="module")
def own() -> Results:
    return results.open("own")


def test_each_curve_has_a_mark_and_the_clearest_difference_is_the_finding(own: Results) -> None:
    lines = ending(own.where("experiment = 'digits'")).splitlines()
    assert lines[0].endswith("o sgd, x momentum, + adam, & several")
    drawn = "".join(lines[1:-3])
    best = own.where("experiment = 'digits'").trials.groupby(["optimizer", "batch_size"])
    reached = best["steps_to_target"].min().dropna().reset_index()
    for optimizer, mark in (("momentum", "x"), ("adam", "+")):
        assert 0 < drawn.count(mark) <= (reached["optimizer"] == optimizer).sum()
    assert lines[-2].split() == ["1", "1,297"]
    assert lines[-1].startswith("Over batch sizes 1 to 1,297, the ratio of the fewest examples")
    assert "of momentum is 3.1 [" in lines[-1]


def test_steps_fall_from_the_left_to_the_right(own: Results) -> None:
    lines = ending(own.where("experiment = 'gallery-mnist' AND optimizer = 'sgd'")).splitlines()
    columns = [line.split("│")[1].find("o") for line in lines[1:-3] if "o" in line]
    assert columns[0] == 0
    assert min(columns[-2:]) >= 40
    assert (lines[1].split("│")[0], lines[-4].split("│")[0]) == ("5,392 ", "1,063 ")


def test_one_curve_says_its_regimes(own: Results) -> None:
    text = ending(own.where("experiment = 'gallery-mnist' AND optimizer = 'sgd'")).splitlines()[-1]
    assert text.startswith("sgd: perfect scaling until ≤ 121 examples, critical batch size ≤ 207")


def test_an_end_that_is_open_is_no_number(own: Results) -> None:
    source = own.where("experiment = 'gallery-mnist' AND optimizer = 'sgd'")
    ((curve, fit),) = FigureData(Query(sources=[source])).pairs
    assert fit is not None
    unknown = replace(fit, perfect_scaling_until=Interval(), maximal_parallelism_from=Interval())
    text = finding([(curve, unknown)])
    assert text.startswith("sgd: end of perfect scaling open, critical batch size ≤ 207")
    assert text.endswith(", start of maximal parallelism open.")


def test_what_cannot_be_fitted_is_drawn_without_a_sentence(own: Results) -> None:
    two = "experiment = 'digits' AND optimizer = 'sgd' AND batch_size < 3"
    assert ending(own.where(two)).splitlines()[-1].split() == ["1", "2"]
    assert ending(own.where(f"{two} AND steps_to_target IS NULL")) == ""


def test_more_curves_than_marks_are_not_drawn(own: Results) -> None:
    (line,) = ending(own.where("experiment = 'techniques-digits'")).splitlines()
    assert " times that of " in line


def test_results_without_a_trial_are_no_final_losses(own: Results) -> None:
    with pytest.raises(ResultsError, match="no trials to make a curve of"):
        FigureData(Query(sources=[own.where("batch_size < 0")])).trials_of_curves  # noqa: B018
