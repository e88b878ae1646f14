"""Trials that were not drawn alike: what is withheld."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from analysis import EstimatorError, curves, regimes
from analysis.curves.best_metric import best_metrics
from analysis.notes import codes
from results.targets.evaluations import Evaluations

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


@pytest.mark.parametrize("method", ["points", "grid", "table"])
def test_all_that_were_chosen_count(method: str) -> None:
    """One of three learning rates diverges at one batch size: the best of the others stays."""
    trials = pd.DataFrame({"batch_size": [8] * 3 + [16] * 3, "index": [0, 1, 2] * 2})
    trials["steps_to_target"] = [90.0, 80, None, 60, 50, 20]
    infeasible = trials["steps_to_target"].isna()
    trials = trials.assign(role="search", search=method, study=trials["batch_size"].astype(str))
    trials["status"] = infeasible.map({True: "INFEASIBLE", False: "COMPLETE"})
    trials["stop_reason"] = infeasible.map({True: "diverged", False: "target"})
    trials["trial"] = [f"t{i}" for i in trials.index]
    (curve,) = curves(trials)
    assert [point.steps for point in curve.points] == [80, 20]
    assert "unequal_n" not in codes(curve.notes)
    measured = trials.assign(target_metric="loss", target_value=0.0, stop_at_target=False)
    looks = pd.DataFrame({"trial": trials["trial"], "step": 9, "loss": [5.0, 4, 1, 5, 4, 3]})
    looks["metrics"] = looks.pop("loss").map('{{"loss": {}}}'.format)
    (best,) = best_metrics(measured, Evaluations.of_frame(looks), [None])
    assert [point.value for point in best.points] == [4, 3]
    (fewer,) = curves(trials.drop(index=2))
    assert fewer.points[1].steps == (50 if method == "grid" else 20)
    assert ("unequal_n" in codes(fewer.notes)) == (method != "grid")


def test_repeats_of_chosen_points_are_runs_alike(search: Make) -> None:
    trials = search(search="points", sizes=(8,))
    best = trials.iloc[int(trials["steps_to_target"].argmin())]
    again = pd.DataFrame([best] * 5).assign(role="repeat", trial=list("abcde"))
    (curve,) = curves(pd.concat([trials, again]))
    assert curve.points[0].repeats is not None
    assert curve.points[0].repeats.level == 0.9375
