"""What is one search: studies searched again, and spaces that were enlarged."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import Curve, curves
from analysis.curves.groups import widen
from analysis.curves.runs import Runs
from analysis.curves.samples import Search
from analysis.notes import Note, codes

Make = Callable[..., pd.DataFrame]


def rows(
    steps: list[float | None], *, dead: tuple[int, ...] = (), enlargement: int = 0, **columns: Any
) -> pd.DataFrame:
    """A block of one study's trials: their steps, None where the target was not reached."""
    frame = pd.DataFrame(
        {
            "index": range(len(steps)),
            "steps_to_target": [np.nan if s is None else s for s in steps],
            "status": "COMPLETE",
            "stop_reason": ["budget" if s is None else "target" for s in steps],
            "steps_run": [1000 if s is None else s for s in steps],
            "batch_size": 8,
            "study": "s",
            "experiment": "e",
            "optimizer": "sgd",
            "role": "extension" if enlargement else "search",
            "enlargement": enlargement,
        }
    ).assign(**columns)
    frame.loc[list(dead), ["status", "stop_reason", "steps_run"]] = ("INFEASIBLE", "diverged", 1)
    frame.loc[list(dead), "steps_to_target"] = np.nan
    frame["trial"] = [f"{columns}-{enlargement}-{i}" for i in range(len(steps))]
    return frame


def only(*frames: pd.DataFrame, **options: Any) -> Curve:
    (curve,) = curves(pd.concat(frames, ignore_index=True), **options)
    return curve


def search_of(*frames: pd.DataFrame) -> tuple[Runs, Search]:
    wide = widen(pd.concat(frames, ignore_index=True)).frame
    runs = Runs.of(wide)
    return runs, Search.of(runs, np.arange(len(wide)))


def test_the_first_of_an_enlarged_space_are_shares_of_each_block() -> None:
    whole = [100.0 + i for i in range(8)]
    runs, search = search_of(
        rows([*whole, None], dead=(2,)),
        rows([50.0, 51, 52, 53], enlargement=1),
        rows([40.0, 41], dead=(0,), enlargement=2),
    )
    assert search.available == 8
    used, slabs = search.first(4)
    # Five rows up to the fourth feasible one; half of each slab.
    assert runs.index[used].tolist() == [0, 1, 2, 3, 4]
    assert runs.index[slabs].tolist() == [0, 1, 0]
    assert runs.steps[search.feasible(slabs)].tolist() == [50, 51]
    assert [len(part) for part in search.first(8)] == [9, 6]
    assert [len(part) for part in search.first(1)] == [1, 1]  # an eighth of 4 rows: to the nearest


def test_shares_grow_with_n_and_end_with_everything() -> None:
    _, search = search_of(
        rows([100.0] * 48), rows([50.0] * 31, enlargement=1), rows([9.0] * 5, enlargement=2)
    )
    firsts = [set(np.concatenate(search.first(n)).tolist()) for n in range(49)]
    assert all(fewer <= more for fewer, more in pairwise(firsts))
    assert not firsts[0]
    assert len(firsts[48]) == 84
    density = [len(search.first(n)[1]) / 36 for n in range(49)]
    assert density == pytest.approx([n / 48 for n in range(49)], abs=1.01 / 36)


def test_an_enlarged_space_is_one_search_and_keeps_the_curves_n() -> None:
    slab = rows([60.0, 61, 62, 63], enlargement=1)
    other = rows([200.0 + i for i in range(4)], study="t", batch_size=4)
    curve = only(rows([100.0 + i for i in range(8)]), slab, other)
    small, large = curve.points
    assert (small.trials, small.enlarged) == (4, 0)
    assert (large.trials, large.enlarged, large.steps) == (6, 2, 60)
    assert large.ran == 6
    assert curve.trials == 4
    assert Note("enlarged", at=[8], n=2) in curve.notes


def test_replacements_of_infeasible_rows_are_no_slab() -> None:
    more = rows([70.0, 71.0]).assign(role="extension", index=[8, 9], trial=["a", "b"])
    hits = rows([None, None, *(100.0 + i for i in range(6))], dead=(0, 1))
    (point,) = only(hits, more).points
    assert (point.trials, point.infeasible, point.ran) == (8, 2, 10)
    assert (point.enlarged, point.steps) == (0, 70)


def test_searches_of_one_study_are_told_by_their_seed() -> None:
    first = rows([100.0, 90, 80], search_seed=0)
    second = rows([70.0, 95, 99], search_seed=7)
    curve = only(first, second, search="all")
    (point,) = curve.points
    assert (point.steps, point.trials, point.searches) == (70, 6, 2)
    (latest,) = only(first, second).points
    assert (latest.steps, latest.trials, latest.searches) == (70, 3, 1)
    (latest,) = only(second, first).points
    assert (latest.steps, latest.trials) == (80, 3)
    # The first two of each, not the first four rows by their index.
    short = rows([60.0, 61], study="t", batch_size=4, search_seed=0)
    again = rows([62.0, 63], study="t", batch_size=4, search_seed=7)
    curve = only(first, second, short, again, search="all")
    assert [point.trials for point in curve.points] == [4, 4]
    assert curve.points[1].steps == 70
    assert any("searched 2 times, with 2 feasible trials each" in note for note in curve.notes)


def test_a_second_search_that_has_hardly_begun_changes_nothing() -> None:
    first = rows([100.0, 90, 80, 85], search_seed=0)
    curve = only(first, rows([10.0], search_seed=7), search="all")
    (point,) = curve.points
    assert (point.steps, point.trials, point.searches) == (80, 4, 1)
    assert Note("short_searches", n=1) in curve.notes


def test_rows_of_before_there_were_search_seeds_are_of_the_first_search() -> None:
    old = rows([100.0, 90])
    new = rows([80.0, 85], search_seed=3).assign(index=[2, 3])
    (point,) = only(old, new).points
    assert (point.trials, point.searches) == (4, 1)


def test_two_methods_of_search_are_two_curves(search: Make) -> None:
    sobol = search(search="sobol", keep=None)
    uniform = search(search="random", seed=4, keep=None).assign(
        trial=lambda frame: frame["trial"] + "t"
    )
    first, second = curves(pd.concat([sobol, uniform]))
    assert [first.group["search"], second.group["search"]] == ["sobol", "random"]
    assert first.trials == second.trials == 16
    (alone,) = curves(sobol)
    assert "search" not in alone.group


def test_the_first_n_of_a_study_are_exact_only_before_the_others_cut_them_off() -> None:
    """Dominated by later trials, one of the first n may be better than all that is known of it."""
    first = rows([100.0, 130, 140, 150, None, None], keep=2)
    first.loc[4:, ["status", "stop_reason"]] = ["INCOMPLETE", "dominated"]
    first.loc[4:, "steps_run"] = [105, 105]
    late = rows([100.0, 105], keep=2).assign(index=[6, 7], trial=["x", "y"])
    small = rows([9.0] * 6, study="t", batch_size=4, keep=2)
    curve = only(small, first, late)
    point = curve.points[1]
    assert (point.trials, point.steps, point.hits, point.exact) == (6, 100, 1, True)
    assert point.fourth is None
    # Here even the best of the first six is not sure.
    hidden = first.assign(steps_to_target=first["steps_to_target"] + 20)
    hidden["steps_run"] = hidden["steps_run"].where(hidden["stop_reason"].eq("dominated"), 200)
    curve = only(small, hidden, late)
    point = curve.points[1]
    assert (point.steps, point.hits, point.exact, point.bar) == (120, 0, False, None)
    assert Note("maybe_lower", at=[8]) in curve.notes
    # And here nothing is known but that it was cut off.
    none = first.assign(steps_to_target=np.nan, status="INCOMPLETE", stop_reason="dominated")
    curve = only(small, none.assign(steps_run=105), late)
    assert curve.points[1].censored
    assert Note("dominated", at=[8]) in curve.notes
    assert "censored" not in codes(curve.notes)
