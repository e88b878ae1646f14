"""Rows that later ones supersede go at compaction, wherever they lie, and nothing else does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.dataset as ds
import pytest

import results
from results import store
from results.run_state.claims import Claims
from results.storage import compact as module
from results.storage.compact import ORPHAN_SECONDS, compact
from results.storage.location import Location
from results.store import Store
from results.targets.evaluations import Evaluations
from tests.results import synthetic
from tests.results.test_compact import _equal, _files, _old, _rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results.md"
NAME = "digits-mlp-sgd-8-3"


def again(root: Path, index: int = 3, evaluations: int = 7, experiment: str = "synthetic") -> str:
    """Train a trial again: ``evaluations`` measurements of it with an error of 0.5."""
    trial = synthetic.trial_row("digits-mlp", "sgd", 8, index)
    points = [
        {"trial": trial["trial"], "step": step, "metrics": {"validation_error": 0.5}}
        for step in range(1, evaluations + 1)
    ]
    run = Store(root).commit(experiment, measurements=points, trials=[trial])
    assert run is not None
    return run


def raw(root: Path, table: str) -> pd.DataFrame:
    return ds.dataset(root / table, format="parquet").to_table().to_pandas()


@pytest.mark.parametrize("experiment", ["synthetic", "other"])
def test_a_trial_trained_again_is_there_once(folder: Path, experiment: str) -> None:
    run = again(folder, experiment=experiment)
    before = _rows(folder)
    assert len(raw(folder, "trials")) == 49
    Store(folder).compact(experiment)
    trials, points = raw(folder, "trials"), raw(folder, "measurements")
    assert len(trials) == trials.trial.nunique() == 48
    assert trials.set_index("trial").loc[NAME, "run"] == run
    assert points[points.trial == NAME].run.tolist() == [run] * 7
    assert len(points) == 300 - 10 + 7
    _equal(_rows(folder), before)


def test_studies_and_sources_keep_their_latest_row(folder: Path) -> None:
    writer = Store(folder)
    for wanted in (50, 100):
        row = synthetic.study_row("digits-mlp", "sgd", 8, trials_wanted=wanted)
        writer.add_studies([row])
        writer.add_sources([{"experiment": "synthetic", "source": "s", "notes": str(wanted)}])
    before = _rows(folder)
    assert len(writer.studies()) == len(results.open(folder).studies) == 12
    writer.compact()
    studies, sources = raw(folder, "studies"), raw(folder, "sources")
    assert len(studies) == 12
    assert studies.set_index("study").trials_wanted["digits-mlp-sgd-8"] == 100
    assert sources.notes.tolist() == ["100"]
    _equal(_rows(folder), before)


def test_each_search_of_a_study_keeps_its_row_and_readers_count_the_latest(folder: Path) -> None:
    """Trials of an earlier search name it: its space must be found."""
    writer = Store(folder)
    for search in ("wide", "narrow", "narrow"):
        row = synthetic.study_row("digits-mlp", "sgd", 8)
        writer.add_studies([{**row, "search_id": search, "search_seed": 0}])
    writer.compact()
    kept = raw(folder, "studies")
    own = kept[kept["study"] == "digits-mlp-sgd-8"]["search_id"]
    assert sorted(own.dropna()) == ["narrow", "wide"]
    assert own.isna().sum() == 1
    for read in (writer.studies(), results.open(folder).studies):
        assert len(read) == 12
        assert read.set_index("study").loc["digits-mlp-sgd-8", "search_id"] == "narrow"


def test_a_file_of_dead_rows_alone_goes(folder: Path) -> None:
    for _ in range(3):
        again(folder)
    Store(folder).compact()
    assert _files(folder) == {"studies": 1, "trials": 1, "measurements": 1}
    assert len(raw(folder, "trials")) == 48
    (only,) = (folder / "trials" / "synthetic").iterdir()
    newest = max((folder / "measurements" / "synthetic").iterdir())
    again(folder, evaluations=0)
    compact(Location(folder))
    assert not only.exists()
    assert not newest.exists()
    assert len(raw(folder, "measurements")) == 290


def test_large_files_are_written_again_where_they_hold_dead_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LARGE", 20)
    monkeypatch.setattr(module, "_MOST", 20)
    before = set((folder / "measurements" / "synthetic").iterdir())
    Store(folder).compact()
    assert set((folder / "measurements" / "synthetic").iterdir()) == before
    again(folder)
    expected = _rows(folder)
    newest = max((folder / "measurements" / "synthetic").iterdir())
    Store(folder).compact()
    after = set((folder / "measurements" / "synthetic").iterdir())
    assert len(before - after) == 1
    assert newest in after or len(after - before) == 1
    _equal(_rows(folder), expected)


def test_nothing_to_do_touches_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again(folder)
    Store(folder).compact()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")}
    done: list[str] = []
    for name in ("write", "delete"):
        monkeypatch.setattr(Location, name, lambda _, name, *__: done.append(name))
    read: list[str] = []
    real = module._rewrite
    monkeypatch.setattr(
        module, "_rewrite", lambda *given: read.extend(given[1]) or real(*given)
    )  # fmt: skip
    monkeypatch.setattr(module, "_read", lambda *_: pytest.fail("rows are read"))
    compact(Location(folder))
    assert done == []
    assert len(read) == 3
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.parquet")} == before


def test_a_row_that_is_superseded_meanwhile_stays_until_the_next_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again(folder, index=2)
    write = Location.write
    runs: list[str] = []

    def slow(self: Location, name: str, data: Any) -> None:
        if name.startswith("trials/") and not runs:
            runs.append("")
            runs[0] = again(folder)
        write(self, name, data)

    monkeypatch.setattr(Location, "write", slow)
    compact(Location(folder))
    trials = raw(folder, "trials")
    assert sorted(trials[trials.trial == NAME].run.map(lambda run: run in runs)) == [False, True]
    points = raw(folder, "measurements")
    assert len(points[points.trial == NAME]) == 10 + 7
    compact(Location(folder))
    assert len(raw(folder, "trials")) == 48
    points = raw(folder, "measurements")
    assert points[points.trial == NAME].run.tolist() == runs * 7


def test_whoever_lost_its_claim_takes_back_what_it_wrote(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again(folder)
    before, files = _rows(folder), _files(folder)
    write = Location.write

    def slow(self: Location, name: str, data: Any) -> None:
        (claim,) = (folder / "claims").glob("*.json")
        claim.write_text(claim.read_text())
        monkeypatch.setattr(Location, "write", write)
        stolen = claim.with_name("stolen")  # another process replaced it while this one slept
        claim.rename(stolen)
        claim.write_bytes(stolen.read_bytes())
        write(self, name, data)

    monkeypatch.setattr(Location, "write", slow)
    compact(Location(folder))
    assert _files(folder) == files
    _equal(_rows(folder), before)


def test_a_commit_whose_measurements_were_merged_does_not_write_them_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It slept between its trials and its check whether the measurements are still there, while two
    compactions went by: the second merged file no longer says that it replaces them."""
    exists = Location.exists

    def sleepy(self: Location, name: str) -> bool:
        monkeypatch.setattr(Location, "exists", exists)
        compact(Location(folder))
        again(folder, index=1)
        compact(Location(folder))
        return exists(self, name)

    monkeypatch.setattr(Location, "exists", sleepy)
    again(folder)
    points = results.open(folder).measurements
    assert not points.duplicated(["trial", "step"]).any()
    assert (points.trial == NAME).sum() == 7


def test_a_commit_that_slept_long_looks_under_the_lock(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction that takes its measurements for a dead writer's decides under the same one."""
    held: list[str] = []
    now = [1e9]
    locked, exists, delete = Claims.locked, Location.exists, Location.delete

    class Clock:
        def __getattr__(self, name: str) -> Any:
            return getattr(store_time, name)

        def time(self) -> float:
            now[0] += ORPHAN_SECONDS
            return now[0]

    store_time = store.time

    def watched(self: Claims) -> Any:
        held.append("locked")
        return locked(self)

    def asked(self: Location, name: str) -> bool:
        held.append(f"exists {name.split('/')[0]}")
        return exists(self, name)

    def deleted(self: Location, name: str) -> None:
        held.append(f"delete {name.split('/')[0]}")
        delete(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(Claims, "locked", watched)
        patch.setattr(Location, "exists", asked)
        again(folder)
        assert held == ["exists measurements"]
        held.clear()
        patch.setattr(store, "time", Clock())
        again(folder)
        assert held == ["locked", "exists measurements"]
    max((folder / "trials" / "synthetic").iterdir()).unlink()
    orphan = max((folder / "measurements" / "synthetic").iterdir())
    _old(orphan)
    monkeypatch.setattr(Location, "exists", asked)
    monkeypatch.setattr(Location, "delete", deleted)
    held.clear()
    monkeypatch.setattr(Claims, "locked", watched)
    compact(Location(folder))
    at = held.index("exists trials")
    assert held[at - 1 : at + 2] == ["locked", "exists trials", "delete measurements"]
    assert not orphan.exists()


def test_measurements_whose_trials_lie_in_a_folder_of_another_name_stay(folder: Path) -> None:
    """A folder that was renamed by hand, in one table alone."""
    (folder / "trials" / "synthetic").rename(folder / "trials" / "renamed")
    for path in (folder / "measurements").rglob("*.parquet"):
        _old(path)
    before = _rows(folder)
    Store(folder).compact()
    assert len(before[2]) == 300
    _equal(_rows(folder), before)


# Whoever has opened the folder before


USES: dict[str, Callable[[results.Results], Any]] = {
    "measurements": lambda run: run.read_measurements(["trial"]).trial.value_counts()[NAME],
    "query": lambda run: run.query(
        f"SELECT count(*) AS evaluations FROM measurements WHERE trial = '{NAME}'"
    ).evaluations[0],
    "evaluations": lambda run: len(
        Evaluations([run]).select("SELECT * FROM evaluations", {"trial": [NAME]})
    ),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("experiment", ["synthetic", "other"])
def test_an_open_dataset_misses_no_measurements(folder: Path, use: str, experiment: str) -> None:
    opened = results.open(folder)
    opened = opened.with_trials(opened.trial_rows)
    assert USES[use](opened) == 10
    again(folder, experiment=experiment)
    assert USES[use](opened) == 7  # the later row's: they are all of the trial's
    compact(Location(folder))
    assert USES[use](opened) == 7
    assert len(opened.measurements) == 297


def test_another_target_is_found_in_them(folder: Path) -> None:
    opened = results.open(folder)
    wanted = opened.with_target("validation_error < 0.3").trials.set_index("trial")
    again(folder, evaluations=20)
    compact(Location(folder))
    answer = opened.with_target("validation_error < 0.3").trials.set_index("trial")
    assert answer.steps_to_target.drop(NAME).equals(wanted.steps_to_target.drop(NAME))


def test_one_that_is_superseded_while_files_are_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from results.storage.source import Folder

    opened = results.open(folder)
    assert len(opened.trial_rows) == 48
    list_files = Folder.measurements

    def slow(self: Folder, *given: Any, **how: Any) -> Any:
        monkeypatch.setattr(Folder, "measurements", list_files)
        again(folder)
        compact(Location(folder))
        return list_files(self, *given, **how)

    monkeypatch.setattr(Folder, "measurements", slow)
    points = opened.read_measurements(["trial", "validation_error"])
    assert (points.trial == NAME).sum() == 7


# What the documentation says of a sweep that still runs


def test_the_line_of_the_page_counts_each_trial_once(folder: Path) -> None:
    again(folder)
    again(folder, index=2, experiment="other")
    line, of_points = re.findall(r'"(SELECT DISTINCT ON .*)"', PAGE.read_text())
    wanted = results.open(folder).trials.sort_values("trial")
    with duckdb.connect() as session:
        sql = line.replace("results/runs", str(folder))
        answer = session.sql(sql).to_arrow_table().to_pandas().sort_values("trial")
        assert list(answer.trial) == list(wanted.trial)
        assert list(answer.run) == list(wanted.run)
        assert len(session.sql(f"SELECT trial FROM '{folder}/trials/**/*.parquet'")) == 50
        # With the measurements of those rows, while replaced files stay too.
        sql = of_points.replace("results/runs", str(folder))
        assert len(session.sql(sql)) == len(results.open(folder).measurements)
        Store(folder).compact(grace=60)
        files = f"'{folder}/measurements/**/*.parquet'"
        assert len(session.sql(f"SELECT step FROM {files}")) > 2 * len(session.sql(sql)) > 0
        assert len(session.sql(sql)) == len(results.open(folder).measurements)
