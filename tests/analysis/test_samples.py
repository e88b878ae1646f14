"""A pool of two searches is no search: which trials count, of frames alone."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import curves
from analysis.curves.groups import widen
from analysis.curves.samples import sample
from results.searches import belongs
from tests.analysis.test_searches import only, rows


def studies(*searches: tuple[str, str | None, int | None]) -> pd.DataFrame:
    """A row a study of experiments: (experiment, search_id, search_seed), study ``s``."""
    return pd.DataFrame(
        [
            {"experiment": experiment, "study": "s", "search_id": search, "search_seed": seed,
             "batch_size": 8, "optimizer": "sgd", "search_space": None, "time": None}
            for experiment, search, seed in searches
        ]
    )  # fmt: skip


WIDE = rows([100.0, 90, 80, 85], search_id="wide", search_seed=0)
NARROW = rows([70.0, 60, 65], search_id="narrow", search_seed=0)


def test_the_studys_row_names_the_search_that_counts() -> None:
    for named, steps, n in (("wide", 80, 4), ("narrow", 60, 3)):
        curve = only(WIDE, NARROW, studies=studies(("e", named, 0)))
        (point,) = curve.points
        assert (point.steps, point.trials) == (steps, n)
        assert any(f"{7 - n} recorded trials belong" in note for note in curve.notes)
    (point,) = only(WIDE, NARROW, studies=studies(("e", "wide", 0)), search="all").points
    assert (point.steps, point.trials) == (60, 6)  # three of each, as both have


def test_without_studies_the_latest_trial_names_it() -> None:
    for last, steps in ((NARROW, 60), (WIDE, 80)):
        early, late = (pd.Timestamp(f"2026-01-0{day}", tz="UTC") for day in (1, 2))
        dated = [f.assign(time=late if f is last else early) for f in (WIDE, NARROW)]
        (point,) = only(*dated).points
        assert point.steps == steps


def test_a_trial_of_both_counts_in_either_with_its_row_there() -> None:
    shared = WIDE.copy()
    shared.loc[2, "other_searches"] = json.dumps({"narrow": 5})
    for named, expected in (("wide", [0, 1, 2, 3]), ("narrow", [5, 0, 1, 2])):
        wide = widen(pd.concat([shared, NARROW], ignore_index=True)).frame
        found = sample(wide, studies(("e", named, 0)))
        assert found.trials["index"].tolist() == expected
        assert set(found.trials["search_id"]) == {named}
    (point,) = only(shared, NARROW, studies=studies(("e", "narrow", 0))).points
    assert (point.steps, point.trials) == (60, 4)


def test_two_experiments_have_a_curve_each() -> None:
    both = pd.concat([WIDE, NARROW.assign(experiment="f")], ignore_index=True)
    found = curves(both, studies=studies(("e", "wide", 0), ("f", "narrow", 0)))
    assert [(c.group["experiment"], c.trials) for c in found] == [("e", 4), ("f", 3)]
    (one,) = curves(both, studies=studies(("e", "wide", 0), ("f", "wide", 0)))
    assert "experiment" not in one.group
    assert one.trials == 4


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, "a", "b", "c"]),
            st.sampled_from([None, 0, 1]),
            st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), max_size=2),
        ),
        min_size=1,
    ),
    st.sampled_from([None, "a", "b"]),
    st.sampled_from([None, 0, 1]),
)
def test_belonging_is_what_a_loop_says(
    drawn: list[tuple[str | None, int | None, dict[str, int]]], search: str | None, seed: int | None
) -> None:
    frame = pd.DataFrame(
        {
            "search_id": [one for one, _, _ in drawn],
            "search_seed": [each for _, each, _ in drawn],
            "other_searches": [json.dumps(others) if others else None for *_, others in drawn],
        }
    ).astype({"search_id": object, "other_searches": object})

    def plain(one: str | None, of: int | None, others: dict[str, Any]) -> bool:
        same_seed = seed is None or of is None or of == seed
        return (one == search and same_seed) or (search is not None and search in others)

    assert belongs(frame, search, seed).tolist() == [plain(*each) for each in drawn]


@pytest.mark.parametrize("scope", ["present", "all"])
def test_what_knows_of_no_searches_is_one_sample(scope: str) -> None:
    plain = widen(rows([100.0, 90, 80])).frame
    assert sample(plain, scope=scope).trials is plain
