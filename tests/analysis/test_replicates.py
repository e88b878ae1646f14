"""A baseline that was searched several times: pooled, never minimized over, its scatter in fits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import Curve, curves
from analysis.curves.best_metric import best_metrics
from analysis.curves.points import Point, pooled
from analysis.fit.comparisons import against
from analysis.fit.regimes import regimes
from analysis.notes import Note, codes
from results.targets.evaluations import Evaluations
from tests.analysis.conftest import SIZES, search

SEARCHES = 3


def replicated(deviation: float = 0.0, *, lucky: int | None = None, **columns: Any) -> pd.DataFrame:
    """Three searches of plain SGD at each batch size, as a sweep records them: with one search id
    and seed, and a study each. Their bests differ by ``deviation`` in logs, about one mean, and at
    the batch size ``lucky`` the last is a third of the others."""
    parts = []
    for replicate in range(SEARCHES):
        part = search(keep=None, noise=0.0, search_id="a", search_seed=0, **columns)
        factor = math.exp((replicate - 1) * deviation)
        where = part["batch_size"].eq(lucky or 0) if replicate == 2 else False
        for name in ("steps_to_target", "last_miss", "steps_run"):
            part[name] = part[name] * factor * np.where(where, 1 / 3, 1)
        for name in ("study", "trial"):
            part[name] += f"-{replicate}" if replicate else ""
        parts.append(part.assign(replicate=replicate))
    return pd.concat(parts, ignore_index=True)


def only(frame: pd.DataFrame, **options: Any) -> Curve:
    (curve,) = curves(frame, **options)
    return curve


def test_a_point_is_the_mean_of_its_searches_and_not_the_least_of_all_trials() -> None:
    frame = replicated(0.2)
    curve = only(frame)
    best = frame.groupby(["batch_size", "replicate"])["steps_to_target"].min().unstack()
    for point in curve.points:
        each = best.loc[point.batch_size]
        assert point.steps == pytest.approx(math.exp(np.log(each).mean()))
        assert point.steps > each.min() * 1.1
        assert point.replicates == tuple(sorted(each))
        assert point.bar == (each.min(), each.max())
        # N is that of a search: the best of three times as many trials would be another estimand.
        assert point.trials == 16
        assert point.ran == 3 * 16
        assert point.log_variance == pytest.approx(np.log(each).var(ddof=1))
        # What describes a trial is that of the usual search.
        assert point.study == f"sgd-{point.batch_size}-1"
        assert len(point.trial_outcomes) == 3 * 16
    assert curve.trials == 16
    assert Note("replicates", n=3, scatter=0.22) in curve.notes


def test_it_is_one_curve_also_where_another_experiment_has_the_first_search() -> None:
    frame = replicated(0.2)
    frame["experiment"] = np.where(frame["replicate"] == 0, "first", "later")
    assert only(frame).group.get("experiment") is None
    # And each search is a curve on request.
    each = curves(frame, by=["replicate"])
    assert [curve.trials for curve in each] == [16] * SEARCHES
    assert all(not point.replicates for curve in each for point in curve.points)


def test_a_lucky_search_moves_a_point_by_a_third_of_its_luck() -> None:
    usual, lucky = only(replicated()), only(replicated(lucky=16))
    for before, after in zip(usual.points, lucky.points, strict=True):
        luck = 3 ** (1 / 3) if before.batch_size == 16 else 1.0
        assert after.steps is not None
        assert before.steps == pytest.approx(after.steps * luck)


def test_the_scatter_of_searches_is_in_the_intervals_of_each_ratio() -> None:
    arm = search("momentum", keep=None, noise=0.02, seed=5)
    widths = []
    for deviation in (0.02, 0.3, 0.6):
        base, other = curves(pd.concat([replicated(deviation), arm], ignore_index=True))
        assert len(base.to_fit()[0]) == SEARCHES * len(SIZES)
        ratios = against(other, base, regimes(other), regimes(base)).ratios
        low, high = ratios["min_steps"].low, ratios["min_steps"].high
        assert low is not None
        assert high is not None
        widths.append(math.log(high / low))
    assert widths[0] < widths[1] < widths[2]


def test_one_search_that_missed_leaves_no_mean() -> None:
    frame = replicated(0.1)
    missed = frame["replicate"].eq(1) & frame["batch_size"].eq(8)
    frame.loc[missed, ["steps_to_target", "last_miss"]] = np.nan
    frame.loc[missed, "stop_reason"] = "budget"
    curve = only(frame)
    assert curve.censored == [8]
    (point,) = [point for point in curve.points if point.batch_size == 8]
    assert len(point.replicates) == 2
    assert point.middles == ()
    assert "not all searches reached the target at batch size 8: no mean is known" in curve.notes
    assert "rare" not in codes(curve.notes)


def test_a_search_that_has_not_begun_or_not_ended_changes_no_n_beyond_its_own() -> None:
    frame = replicated(0.1)
    ended = frame[frame["replicate"] < 2]
    waiting = frame[frame["replicate"].eq(2)].assign(status="INCOMPLETE", stop_reason="error")
    waiting[["steps_to_target", "last_miss"]] = np.nan
    curve = only(pd.concat([ended, waiting], ignore_index=True))
    assert {(point.trials, len(point.replicates)) for point in curve.points} == {(16, 2)}
    some = frame[frame["replicate"].lt(2) | frame["index"].lt(4)]
    assert {point.trials for point in only(some).points} == {4}


def test_repeats_are_those_of_each_search() -> None:
    frame = replicated(0.0)
    best = frame.loc[frame.groupby("study")["steps_to_target"].idxmin()]
    again = best.assign(
        role="repeat", trial=best["trial"] + "-again", steps_to_target=best["steps_to_target"] * 1.5
    )
    curve = only(pd.concat([frame, again], ignore_index=True))
    (note,) = [note for note in curve.notes if note.code == "trained_again"]
    assert "takes 1.50 times" in note
    assert "repeats_of_others" not in codes(curve.notes)
    for point in curve.points:
        assert point.repeats is not None
        assert len(point.repeats.steps) == 1


def test_the_best_metric_is_that_of_as_many_trials_as_others_have() -> None:
    frame = replicated(0.1, sizes=(8,), stop_at_target=False)
    frame = frame.assign(stop_reason="budget", steps_run=10)
    looks = pd.DataFrame(
        {"trial": frame["trial"], "step": 10, "validation_error": 0.5 - 0.1 * frame["replicate"]}
    )
    (curve,) = best_metrics(frame, Evaluations.of_frame(looks), [None])
    assert curve.trials == 16
    assert curve.points[0].value == 0.5


def test_of_a_single_search_nothing_changes() -> None:
    point = Point(batch_size=8, steps=3.0, trials=1)
    assert pooled([point]) is point
    assert point.log_variance is None
    plain = search(keep=None)
    assert only(plain) == only(plain.assign(replicate=0))
    zero = pooled([point, Point(batch_size=8, steps=0.0, trials=1)])
    assert zero.censored
