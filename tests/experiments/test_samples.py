"""A search is part of what a study's sample is: trials of another one are not counted with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import batchscale as bs
import results as dataset
from experiments.records.status import status
from experiments.scheduling.messages import Event, Note
from results.storage.location import Location
from results.store import Store
from tests.experiments.test_sweep import experiment, run, table
from tests.results.synthetic import claimed

NARROW = {"search": {"learning_rate": {"linear": [0.2, 1.5]}}}
POINTS = [0.1, 0.2, 0.3, 0.4]


def by_hand(*values: float) -> dict[str, Any]:
    return {
        "method": "points",
        "points": [{"learning_rate": value} for value in values],
        "trials": len(values),
    }


def curve(root: Path, **options: Any) -> dict[str, Any]:
    (one,) = bs.regimes(root, **options)
    return one


def minima(rows: pd.DataFrame) -> dict[int, float]:
    least = rows.groupby("batch_size").steps_to_target.min()
    return dict(zip(least.index, least, strict=True))


def steps(one: dict[str, Any]) -> dict[int, float]:
    return {point["batch_size"]: point["steps"] for point in one["points"]}


SIZES = {"batch_size": "64, 128, 256, 512"}


@pytest.mark.slow
def test_a_narrowed_range_is_another_search(tmp_path: Path) -> None:
    """Old and new trials were one N of 40, two rows carried index 0."""
    run(tmp_path, experiment(**SIZES, keep="off"))
    wide = table(tmp_path)
    seen: list[Event] = []
    did = run(tmp_path, experiment(**SIZES, **NARROW, keep="off"), observer=seen.append)
    (note,) = [event.text for event in seen if isinstance(event, Note)]
    assert note.startswith(f"{len(wide)} recorded trials of 4 studies are of another search")
    assert "--search all" in note
    rows = table(tmp_path)
    new = rows[~rows.trial.isin(wide.trial)]
    assert rows.study.nunique() == 4  # a study is what it was
    assert new.search_id.nunique() == wide.search_id.nunique() == 1
    assert not set(new.search_id) & set(wide.search_id)
    assert did.trained == did.trials == len(new)
    one = curve(tmp_path)
    assert one["trials"] == 20
    assert steps(one) == minima(new)
    assert f"{len(wide)} recorded trials belong to other searches" in " ".join(one["notes"])
    both = curve(tmp_path, search="all")
    assert both["trials"] == 40
    assert steps(both) == minima(rows)
    assert "other_searches" not in both["note_codes"]
    counts = status(tmp_path).studies
    assert counts["left"].sum() == 0
    assert counts["done"].sum() == len(new)
    assert counts["other_searches"].sum() == len(wide)


@pytest.mark.slow
def test_going_back_to_a_search_goes_on_with_its_trials(tmp_path: Path) -> None:
    first = experiment(**SIZES, keep="off")
    run(tmp_path, first)
    before = curve(tmp_path)
    run(tmp_path, experiment(**SIZES, **NARROW, keep="off"))
    assert steps(curve(tmp_path)) != steps(before)
    again = run(tmp_path, first)
    assert again.trained == 0
    assert steps(curve(tmp_path)) == steps(before)


@pytest.mark.parametrize(
    "changes",
    [
        NARROW,
        {"search": {"learning_rate": 0.3}},
        {"method": "random"},
        {"method": "grid"},
        {"seed": 5},
        by_hand(0.3, 0.6),
    ],
)
def test_what_makes_a_search_another_one(changes: dict[str, Any]) -> None:
    """What comes of it: the narrowed range above."""
    before, after = (experiment(**more).studies()[-1] for more in ({}, changes))
    assert before.id == after.id
    assert (before.search.id, before.search.seed) != (after.search.id, after.search.seed)


@pytest.mark.parametrize(
    "changes",
    [
        {"trials": 30},
        {"keep": 2},
        {"extend": 1},
        {"repeats": 1},
        {"estimator": "best_of_10", "keep": "off"},
        {"target": "validation_error < 0.06"},
        {"budget": "120 steps"},
        {"batch_size": "32, 64, 128"},
        {"engine": "module"},
        {"name": "other"},
    ],
)
def test_what_leaves_a_search_as_it_is(changes: dict[str, Any]) -> None:
    before, after = (experiment(**more).studies()[-1] for more in ({}, changes))
    assert (before.id, before.search.id) == (after.id, after.search.id)


def test_a_budget_is_part_of_a_search_where_shares_of_it_are_tuned() -> None:
    def search_id(**changes: Any) -> str:
        return experiment(**changes).studies()[0].search.id

    assert search_id(budget="100 steps") == search_id(budget="200 steps")
    assert search_id(budget="100 steps", schedule="linear") != search_id(
        budget="200 steps", schedule="linear"
    )
    in_steps = {"schedule": "linear", "search": {"linear": {"decay_steps": 50}}}
    assert search_id(budget="100 steps", **in_steps) == search_id(budget="200 steps", **in_steps)


@pytest.mark.slow
def test_shared_points_belong_to_both_and_are_not_trained_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("FAKE_LOG", str(log))
    root = tmp_path / "runs"
    run(root, experiment(**SIZES, **by_hand(0.1, 0.2, 0.3), keep="off"))
    trained = log.read_text().split()[::2]
    did = run(root, experiment(**SIZES, **by_hand(0.2, 0.4, 0.3), keep="off"))
    assert did.trained == 4  # 0.4 at each batch size
    assert len(set(log.read_text().split()[::2])) == len(trained) + 4
    rows = table(root)
    assert len(rows) == 16
    shared = rows[rows.learning_rate.isin([0.2, 0.3])]
    assert shared.other_searches.notna().all()
    assert rows[~rows.trial.isin(shared.trial)].other_searches.isna().all()
    places = {
        rate: set(map(str, json.loads(text).values()))
        for rate, text in zip(shared.learning_rate, shared.other_searches, strict=True)
    }
    assert places == {0.2: {"0"}, 0.3: {"2"}}
    one = curve(root)
    assert one["trials"] == 3
    assert steps(one) == minima(rows[rows.learning_rate != 0.1])
    # The first search still has all of its own, in an experiment of its own name.
    run(root, experiment(**SIZES, **by_hand(0.1, 0.2, 0.3), keep="off"))
    assert steps(curve(root)) == minima(rows[rows.learning_rate != 0.4])
    # What is amended keeps its measurements, and stands once.
    found = dataset.open(root)
    assert set(found.measurements.trial) == set(rows.trial)
    assert len(found.trials) == 16


@pytest.mark.slow
def test_two_experiments_that_search_a_study_in_unlike_ways_are_two_curves(tmp_path: Path) -> None:
    run(tmp_path, experiment(**SIZES, **by_hand(0.1, 0.2, 0.3), keep="off", name="low"))
    run(tmp_path, experiment(**SIZES, **by_hand(0.3, 0.4, 0.5), keep="off", name="high"))
    rows = table(tmp_path)
    assert len(rows) == 20  # 0.3 is trained once
    low, high = sorted(bs.regimes(tmp_path), key=lambda one: one["experiment"], reverse=True)
    assert (low["experiment"], high["experiment"]) == ("low", "high")
    assert low["trials"] == high["trials"] == 3
    assert steps(low) == minima(rows[rows.learning_rate <= 0.3])
    assert steps(high) == minima(rows[rows.learning_rate >= 0.3])
    assert not any("other_searches" in one["note_codes"] for one in (low, high))
    counts = (
        status(tmp_path).studies.groupby("experiment")[["done", "left", "other_searches"]].sum()
    )
    assert list(counts.loc["low"]) == list(counts.loc["high"]) == [12, 0, 8]


@pytest.mark.slow
def test_experiments_that_search_alike_are_one_sample(tmp_path: Path) -> None:
    run(tmp_path, experiment(**SIZES, keep="off"))
    did = run(tmp_path, experiment(**SIZES, keep="off", name="again"))
    assert did.trained == 0
    assert curve(tmp_path)["trials"] == 20


@pytest.mark.slow
def test_the_edge_check_holds_trials_against_their_own_space(tmp_path: Path) -> None:
    """The best of the wide search lies outside of the narrow one."""
    run(tmp_path, experiment(**SIZES, keep="off"))
    seen: list[Event] = []
    from analysis.curves import edges

    narrow = {"search": {"learning_rate": {"linear": [0.5, 1.2]}}}
    run(tmp_path, experiment(**SIZES, **narrow, keep="off"), judge=edges, observer=seen.append)
    found = [point["edges"] for point in curve(tmp_path)["points"]]
    assert sum("learning_rate at its lower end 0.5" in edges for edges in found) >= 2
    assert not any("0.05" in edges for edges in found)
    run(tmp_path, experiment(**SIZES, keep="off"))
    assert not any("0.5" in point["edges"] for point in curve(tmp_path)["points"])


def _forget(root: Path) -> None:
    """The folder as a version wrote it that knew of no searches."""
    store = Store(root)
    rows = dataset.open(root).trial_rows.to_pylist()
    store.amend([{**row, "search_id": None, "other_searches": None} for row in rows])
    studies = dataset.open(root).source.table("studies").to_pylist()
    store.add_studies([{**row, "search_id": None, "search_seed": None} for row in studies])


@pytest.mark.slow
def test_older_results_are_read_as_they_were_and_taken_over(tmp_path: Path) -> None:
    run(tmp_path, experiment(**SIZES, keep="off"))
    before = curve(tmp_path)
    _forget(tmp_path)
    assert curve(tmp_path)["points"] == before["points"]
    assert status(tmp_path).studies["done"].sum() == len(table(tmp_path))
    again = run(tmp_path, experiment(**SIZES, keep="off"))
    assert again.trained == 0
    assert table(tmp_path).search_id.notna().all()
    assert curve(tmp_path)["points"] == before["points"]
    _forget(tmp_path)
    run(tmp_path, experiment(**SIZES, **NARROW, keep="off"))
    rows = table(tmp_path)
    assert curve(tmp_path)["trials"] == 20
    assert steps(curve(tmp_path)) == minima(rows[rows.search_id.notna()])


def test_a_trial_that_somebody_trains_is_left_to_them(tmp_path: Path) -> None:
    run(tmp_path, experiment(**by_hand(*POINTS), keep="off"))
    rows = table(tmp_path)
    held = claimed(Location(tmp_path), "theirs", list(rows.trial))
    run(tmp_path, experiment(**by_hand(*POINTS, 0.5), keep="off"))
    assert table(tmp_path).other_searches.isna().all()
    held.release()
    did = run(tmp_path, experiment(**by_hand(*POINTS, 0.5), keep="off"))
    assert did.trained == 0
    assert table(tmp_path).other_searches.notna().sum() == len(rows)


def test_a_trial_that_goes_on_keeps_its_searches(tmp_path: Path) -> None:
    """Dominated in one search and trained on in another, it belongs to both."""
    run(tmp_path, experiment(batch_size=64, **by_hand(0.1, 0.2, 0.3, 0.9), keep=1))
    dominated = table(tmp_path).query("stop_reason == 'dominated'")
    assert len(dominated)
    run(tmp_path, experiment(batch_size=64, **by_hand(0.9, 0.3), keep="off"))
    rows = table(tmp_path).query("learning_rate >= 0.3")
    assert (rows.stop_reason == "target").all()
    assert rows.other_searches.notna().all()
    run(tmp_path, experiment(batch_size=64, **by_hand(0.1, 0.2, 0.3, 0.9), keep=1))
    assert status(tmp_path).studies["other_searches"].sum() == 0


@pytest.mark.slow
def test_searches_of_several_seeds(tmp_path: Path) -> None:
    """Their median asks for all of them; a minimum is that of the latest."""
    for seed in (0, 1, 2):
        run(tmp_path, experiment(**SIZES, keep="off", seed=seed))
    rows = table(tmp_path)
    assert rows.search_id.nunique() == 1
    assert steps(curve(tmp_path)) == minima(rows[rows.search_seed == 2])
    median = curve(tmp_path, estimator="median_of_searches")
    least = rows.groupby(["batch_size", "search_seed"]).steps_to_target.min()
    assert steps(median) == least.groupby("batch_size").median().to_dict()
    assert steps(curve(tmp_path, search="all")) == minima(rows)


def test_no_trial_of_the_present_search_yet(tmp_path: Path) -> None:
    run(tmp_path, experiment(**SIZES, keep="off"))
    other = {"search": {"learning_rate": {"linear": [0.3, 0.4]}}}
    plans = experiment(**SIZES, **other, keep="off")
    from experiments.records.planned import planned

    Store(tmp_path).add_studies([each.row for each in planned(plans)])
    with pytest.raises(
        bs.ResultsError, match=r"all of these \(99 trials\) were drawn by other"
    ) as error:
        bs.regimes(tmp_path)
    assert "--search all" in str(error.value.hint)
    with pytest.raises(bs.ResultsError, match="no searches are called 'al'"):
        bs.regimes(tmp_path, search="al")


def test_the_dry_run_counts_the_present_search(tmp_path: Path) -> None:
    from batchscale.sweeps import recorded

    run(tmp_path, experiment(keep="off"))
    same, other = experiment(keep="off").studies(), experiment(keep="off", **NARROW).studies()
    assert sum(recorded(tmp_path, same).values()) == len(table(tmp_path))
    assert sum(recorded(tmp_path, other).values()) == 0
