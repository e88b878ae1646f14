"""Trials that were not drawn alike: what is withheld."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from analysis import EstimatorError, curves, regimes

Make = Callable[..., pd.DataFrame]


def test_intervals_from_single_trials_are_withheld_and_it_says_why(search: Make) -> None:
    (curve,) = curves(search(search="points"))
    assert curve.withheld is not None
    assert all(point.bar is None for point in curve.points)
    assert all(point.budget is None for point in curve.points)
    assert curve.to_frame()["high"].isna().all()
    (note,) = [note for note in curve.notes if "withheld" in note]
    assert "chosen by hand" in note
    with pytest.raises(EstimatorError, match="drawn alike") as caught:
        curves(search(search="points", keep=None), estimator="best_of_10")
    assert caught.value.hint == "take --estimator minimum"


def test_what_rests_on_the_scatter_about_the_curve_stays(search: Make) -> None:
    """And nothing rests on order statistics, which are not those of a random sample."""
    drawn, chosen = curves(search())[0], curves(search(search="points"))[0]
    scatter = replace(drawn, points=tuple(replace(p, fourth=None) for p in drawn.points))
    assert regimes(chosen).critical_batch_size == regimes(scatter).critical_batch_size
    assert regimes(chosen).critical_batch_size != regimes(drawn).critical_batch_size
    assert [p.steps for p in chosen.points] == [p.steps for p in drawn.points]


@pytest.mark.parametrize("method", ["sobol", "random", "grid", None])
def test_trials_that_were_drawn_alike_keep_them(search: Make, method: str | None) -> None:
    (curve,) = curves(search(search=method))
    assert curve.withheld is None
    assert all(point.bar for point in curve.points)


def test_repeats_of_chosen_points_are_runs_alike(search: Make) -> None:
    trials = search(search="points", sizes=(8,))
    best = trials.iloc[int(trials["steps_to_target"].argmin())]
    again = pd.DataFrame([best] * 5).assign(role="repeat", trial=list("abcde"))
    (curve,) = curves(pd.concat([trials, again]))
    assert curve.points[0].repeats is not None
    assert curve.points[0].repeats.level == 0.9375
