"""The best configuration trained again: never in a minimum, its median with an interval."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import curves
from analysis.curves.runs import Repeats
from analysis.curves.search_points import repeats_note

Make = Callable[..., pd.DataFrame]


def again(trials: pd.DataFrame, steps: list[float | None], batch_size: int = 8) -> pd.DataFrame:
    """Repeats of the best trial at ``batch_size``; None: it did not reach the target."""
    here = trials[trials["batch_size"] == batch_size]
    best = here.iloc[int(here["steps_to_target"].argmin())]
    rows = pd.DataFrame([best] * len(steps)).reset_index(drop=True)
    return rows.assign(
        role="repeat",
        trial=[f"r{batch_size}-{i}" for i in range(len(steps))],
        index=[900 + i for i in range(len(steps))],
        steps_to_target=[np.nan if one is None else one for one in steps],
        last_miss=np.nan,
        stop_reason=["budget" if one is None else "target" for one in steps],
        status="COMPLETE",
    )


@pytest.mark.parametrize(
    ("runs", "interval", "level"),
    [
        (1, (0, 0), 0.0),
        (2, (0, 1), 0.5),
        (3, (0, 2), 0.75),
        (5, (0, 4), 0.9375),
        (8, (1, 6), 0.9296875),
        (10, (1, 8), 0.978515625),
        (11, (2, 8), 0.9345703125),
    ],
)
def test_the_interval_of_the_median(runs: int, interval: tuple[int, int], level: float) -> None:
    """By the binomial distribution of how many runs lie below the median."""
    found = Repeats(steps=tuple(float(i) for i in range(runs)))
    assert found.interval == interval
    assert found.level == level


def test_it_covers() -> None:
    rng = np.random.default_rng(9)
    draws = np.sort(rng.exponential(size=(4000, 5)), axis=1)
    inside = [
        low <= np.log(2) <= high
        for low, high in (Repeats(steps=tuple(row)).interval for row in draws)
    ]
    assert np.mean(inside) == pytest.approx(0.9375, abs=0.012)


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=40).map(sorted))
def test_the_median_lies_within(steps: list[float]) -> None:
    found = Repeats(steps=tuple(steps))
    low, high = found.interval
    assert found.median is not None
    assert low <= found.median * (1 + 1e-12)
    assert found.median <= high * (1 + 1e-12)
    assert len(steps) < 5 or found.level >= 0.9


def test_runs_that_miss_the_target_take_longer_than_all() -> None:
    some = Repeats(steps=(7.0, 9.0, 11.0, np.inf, np.inf))
    assert some.median == 11
    assert some.interval == (7, np.inf)
    assert Repeats(steps=(7.0, 9.0, np.inf, np.inf)).median is None


def test_they_stand_beside_the_minimum_and_never_in_it(search: Make) -> None:
    trials = search()
    more = again(trials, [1.0, 2, 3, 4, None])
    (plain,), (curve,) = curves(trials), curves(pd.concat([trials, more]))
    for without, point in zip(plain.points, curve.points, strict=True):
        assert point.steps == without.steps
        assert point.trials == without.trials
        assert point.middles == without.middles
        assert point.budget == without.budget
    at = curve.points[3]
    assert at.repeats == Repeats(steps=(1, 2, 3, 4, np.inf))
    row = curve.to_frame().iloc[3]
    assert row[["repeats", "repeats_median", "repeats_low"]].tolist() == [5, 3, 1]
    assert pd.isna(row["repeats_high"])
    assert row["repeats_level"] == 0.9375
    assert curve.points[2].repeats is None
    assert curve.to_frame()["repeats"].tolist() == [0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]
    assert "5 repeated runs are not part of the minima" in curve.notes


def test_those_of_another_configuration_are_told_apart(search: Make) -> None:
    trials = search()
    more = again(trials, [50.0, 60, 70])
    more.loc[1, "metaparameters"] = json.dumps({"learning_rate": 1.5})
    (curve,) = curves(pd.concat([trials, more]))
    assert curve.points[3].repeats == Repeats(steps=(50, 70))
    assert "1 of the repeated runs are of other configurations than the best" in curve.notes


def test_one_that_broke_off_says_nothing_and_one_that_diverged_never_arrived(search: Make) -> None:
    trials = search()
    more = again(trials, [50.0, None, None])
    more.loc[1, ["status", "stop_reason"]] = ["INCOMPLETE", "error"]
    more.loc[2, ["status", "stop_reason"]] = ["INFEASIBLE", "diverged"]
    (curve,) = curves(pd.concat([trials, more]))
    assert curve.points[3].repeats == Repeats(steps=(50, np.inf))


def test_what_they_say_of_the_minima() -> None:
    pairs = [(100.0, Repeats(steps=(110.0, 120, 130))), (50.0, Repeats(steps=(50.0,)))]
    assert repeats_note(pairs) == (
        "trained again with fresh seeds, the best configuration takes 1.10 times its best trial's "
        "steps (the median of 2 searches, 1.00 to 1.20)"
    )
    lost = (9.0, Repeats(steps=(np.inf,)))
    assert str(repeats_note([*pairs, lost])).endswith("; at 1 it mostly misses the target")
    assert repeats_note([lost]) is None
