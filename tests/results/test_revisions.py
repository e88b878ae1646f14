"""Which of several rows counts follows from their revisions, whatever a clock says."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

import results
from analysis.curves.curve import prepared
from results.imports import commit_import
from results.searches import current
from results.storage.location import Location
from results.store import Store
from tests.results.test_superseded import PAGE, raw

AHEAD = datetime.now(UTC) + timedelta(hours=1)


def commit(root: Path, steps: int, **columns: Any) -> None:
    row = {"trial": "t", "study": "s", "steps_run": steps, **columns}
    points = [{"trial": "t", "step": steps, "metrics": {"validation_error": 0.5}}]
    Store(root).commit("e", measurements=points, trials=[row])


def one(root: Path) -> int:
    """The steps of the trial's row that counts, for every reader."""
    run = results.open(root)
    (ours,) = run.trials["steps_run"]
    assert run.query("SELECT steps_run FROM trials")["steps_run"].tolist() == [ours]
    assert run.measurements["step"].tolist() == [ours]
    assert Store(root).trials(columns=["steps_run"])["steps_run"].tolist() == [ours]
    sql, _ = re.findall(r'"(SELECT DISTINCT ON .*)"', PAGE.read_text())
    with duckdb.connect() as session:
        answer = session.sql(sql.replace("results/runs", str(root))).fetchdf()
    assert answer["steps_run"].tolist() == [ours]
    return int(ours)


def test_a_later_row_counts_although_the_first_is_dated_ahead(tmp_path: Path) -> None:
    commit(tmp_path, 40, time=AHEAD)
    commit(tmp_path, 80)
    assert one(tmp_path) == 80
    opened = results.open(tmp_path)
    assert len(opened.trial_rows) == 1
    commit(tmp_path, 60)  # a failure, say, earlier in the training
    assert one(tmp_path) == 60
    assert opened.measurements["step"].tolist() == [60]
    Store(tmp_path).compact()
    assert raw(tmp_path, "trials")["steps_run"].tolist() == [60]
    assert raw(tmp_path, "trials")["revision"].tolist() == [3]
    assert one(tmp_path) == 60


def test_of_two_writers_who_did_not_know_of_each_other_the_one_with_more_steps_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "next_revision", lambda *_: 1)
    commit(tmp_path, 80)
    commit(tmp_path, 40, time=AHEAD)
    assert one(tmp_path) == 80


def test_an_amended_row_counts_until_the_trial_is_trained_again(tmp_path: Path) -> None:
    commit(tmp_path, 40, time=AHEAD)
    (row,) = results.open(tmp_path).trial_rows.to_pylist()
    Store(tmp_path).amend([{**row, "role": "repeat"}])
    assert results.open(tmp_path).trials["role"].tolist() == ["repeat"]
    commit(tmp_path, 80)
    Store(tmp_path).amend([{**row, "role": "extension"}])  # it had been read before
    assert one(tmp_path) == 80


def test_rows_of_before_revisions_are_older_than_all_others(tmp_path: Path) -> None:
    commit(tmp_path, 40, time=AHEAD)
    (file,) = (tmp_path / "trials" / "e").iterdir()
    rows = pq.read_table(file)
    older = rows.drop_columns(["revision"]).replace_schema_metadata(
        {**rows.schema.metadata, b"batchscale.schema": b"8"}
    )
    pq.write_table(older, file)
    assert results.open(tmp_path).trials["revision"].isna().all()
    commit(tmp_path, 30)
    assert Store(tmp_path).trials(columns=["steps_run"])["steps_run"].tolist() == [30]
    Store(tmp_path).compact()
    assert one(tmp_path) == 30


def test_the_newest_plan_of_an_experiment_is_the_last_that_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    plans = {"first": ("a", "b"), "second": ("b",)}
    for text, studies in plans.items():
        time = AHEAD if text == "first" else None
        rows = [{"experiment": "e", "study": s, "experiment_yaml": text} for s in studies]
        store.add_studies([{**row, "time": time} for row in rows])
    read = results.open(tmp_path).studies
    assert read["experiment_yaml"].tolist() == ["first", "second"]
    assert current(read).tolist() == [False, True]


def test_newer_code_of_a_workload_is_what_was_trained_last() -> None:
    frame = pd.DataFrame(
        {
            "workload": "w",
            "workload_version": ["old", "new"],
            "revision": [1, 2],
            "time": [AHEAD, AHEAD - timedelta(hours=1)],
            "batch_size": 8,
        }
    )
    wide, notes = prepared(frame, None)
    assert wide.frame["workload_version"].tolist() == ["new"]
    assert notes == ["1 trial of an earlier version of the workload's code is left out"]


def test_an_import_again_replaces_one_that_is_dated_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(checksum: str) -> None:
        commit_import(
            tmp_path,
            experiment="e",
            sources=[{"source": "x", "address": "here", "checksum": checksum}],
            studies=[{"study": "s"}],
            trials=[{"trial": checksum, "study": "s"}],
        )

    class Clock:
        @staticmethod
        def now(_: object) -> datetime:
            return AHEAD

    with monkeypatch.context() as patch:
        patch.setattr("results.imports.datetime", Clock)
        rows("old")
    monkeypatch.setattr(Location, "delete", lambda *_: None)  # it is killed there
    rows("new")
    assert results.open(tmp_path).sources["checksum"].tolist() == ["new"]
