"""Compaction: the same rows in fewer files, at every moment, wherever it is cut off."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

import results
from results.storage.compact import ORPHAN_SECONDS, compact
from results.storage.dataset import encode
from results.storage.location import Location
from results.storage.objects import ObjectStore
from results.store import Store
from tests.results import synthetic
from tests.results.synthetic import claimed


def _rows(root: Path | Location) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    run = results.open(root) if isinstance(root, Path) else _open(root)
    return (
        run.studies.sort_values("study").reset_index(drop=True),
        run.trials.sort_values("trial").reset_index(drop=True),
        run.measurements.sort_values(["trial", "step"]).reset_index(drop=True),
    )


def _open(location: Location) -> results.Results:
    from results.storage.source import Folder

    return results.Results(location.root, Folder(location))


def _equal(left: Any, right: Any) -> None:
    for one, other in zip(left, right, strict=True):
        pd.testing.assert_frame_equal(one, other)


def _files(folder: Path) -> dict[str, int]:
    tables = ("studies", "trials", "measurements")
    return {table: len(list((folder / table).rglob("*.parquet"))) for table in tables}


def _old(path: Path) -> None:
    past = time.time() - ORPHAN_SECONDS - 60
    os.utime(path, (past, past))


def test_one_file_a_table_and_the_same_rows(folder: Path) -> None:
    store = Store(folder)
    store.add_studies([synthetic.study_row("digits-mlp", "sgd", 8, trials_wanted=100)])
    synthetic.commit(store, [synthetic.trial_row("digits-mlp", "sgd", 8, 0)])
    before = _rows(folder)
    assert _files(folder) == {"studies": 2, "trials": 13, "measurements": 13}
    store.compact()
    assert _files(folder) == {"studies": 1, "trials": 1, "measurements": 1}
    _equal(_rows(folder), before)
    store.compact("synthetic")
    store.compact("another")
    _equal(_rows(folder), before)
    assert not list((folder / "claims").glob("*.json"))


def test_old_orphans_go_and_young_ones_stay(folder: Path) -> None:
    store = Store(folder)
    synthetic.commit(store, [synthetic.trial_row("digits-mlp", "sgd", 64, 0)])
    max((folder / "trials" / "synthetic").iterdir()).unlink()
    orphan = max((folder / "measurements" / "synthetic").iterdir())
    before = _rows(folder)
    store.compact()
    assert orphan.exists()
    _old(orphan)
    store.compact()
    assert not orphan.exists()
    _equal(_rows(folder), before)


def test_a_commit_that_slept_between_its_writes_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its measurements were swept away as orphans before its trials came."""
    store = Store(folder)
    write = Location.write

    def sleepy(self: Location, name: str, data: Any) -> None:
        if name.startswith("trials/"):
            monkeypatch.setattr(Location, "write", write)
            _old(max((folder / "measurements" / "synthetic").iterdir()))
            compact(Location(folder))
        write(self, name, data)

    monkeypatch.setattr(Location, "write", sleepy)
    synthetic.commit(store, [synthetic.trial_row("digits-mlp", "sgd", 64, 0)])
    run = results.open(folder)
    assert len(run.trials) == 49
    assert (run.measurements.trial == "digits-mlp-sgd-64-0").sum() == 4


def test_temporary_files_of_dead_writers_go(folder: Path) -> None:
    left = folder / "trials" / "synthetic" / ".x.parquet.1234.tmp"
    left.write_bytes(b"half")
    Store(folder).compact()
    assert left.exists()
    _old(left)
    Store(folder).compact()
    assert not left.exists()


@pytest.mark.slow
def test_readers_and_writers_beside_it_see_every_row(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    store = Store(root)
    stop = threading.Event()
    wrong: list[str] = []

    def write() -> None:
        for index in range(60):
            trial = {"trial": f"t{index}", "study": "s"}
            points = [{"trial": f"t{index}", "step": step} for step in range(5)]
            store.commit("e", measurements=points, trials=[trial])
        stop.set()

    def shrink() -> None:
        while not stop.is_set():
            Store(root).compact()

    def read() -> None:
        least = 0
        while not stop.is_set():
            run = results.open(root)
            trials = len(run.trials)
            points = run.measurements
            if trials < least or len(points) != 5 * trials or points.duplicated().any():
                wrong.append(f"{trials} trials after {least}, {len(points)} measurements")
            least = trials

    threads = [threading.Thread(target=work) for work in (write, shrink, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    Store(root).compact()
    run = results.open(root)
    assert (len(run.trials), len(run.measurements)) == (60, 300)


@pytest.mark.parametrize("name", ["../../../precious.parquet", "{root}/precious.parquet"])
def test_it_deletes_nothing_outside(folder: Path, tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious.parquet"
    precious.write_bytes(b"precious")
    file = max((folder / "trials" / "synthetic").iterdir())
    rows = pq.read_table(file)
    file.write_bytes(encode(rows, [name.format(root=tmp_path)]))
    with pytest.raises(results.ResultsError, match="does not say which files it replaces"):
        Store(folder).compact()
    assert precious.exists()


def test_it_deletes_no_file_that_it_does_not_list(folder: Path) -> None:
    file = max((folder / "trials" / "synthetic").iterdir())
    file.write_bytes(encode(pq.read_table(file), ["gone.parquet"]))
    Store(folder).compact()
    assert _files(folder)["trials"] == 1
    assert len(results.open(folder).trials) == 48


def test_temporary_files_of_others_stay(folder: Path) -> None:
    inner = folder / "trials" / "synthetic" / "inner"
    inner.mkdir()
    others = [inner.parent / "notes.tmp", inner.parent / ".notes.tmp", inner / ".x.parquet.0.tmp"]
    for path in others:
        path.write_bytes(b"")
        _old(path)
    Store(folder).compact()
    assert all(path.exists() for path in others)


def test_one_at_a_time(folder: Path) -> None:
    other = claimed(folder, "compact-synthetic", [])
    Store(folder).compact()
    assert _files(folder)["trials"] == 12
    other.release()
    Store(folder).compact()
    assert _files(folder)["trials"] == 1


def test_large_files_are_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.storage.compact._LARGE", 20)
    monkeypatch.setattr("results.storage.compact._MOST", 60)
    before = _rows(folder)
    Store(folder).compact()
    # 12 commits of 25 measurements are large enough; 12 of 4 trials come together.
    assert _files(folder)["measurements"] == 12
    assert _files(folder)["trials"] == 1
    _equal(_rows(folder), before)


def test_in_an_object_store(bucket: Location) -> None:
    store = Store(bucket)
    for index in range(4):
        synthetic.commit(store, [synthetic.trial_row("digits-mlp", "sgd", 8, index)])
    before = _rows(bucket)
    assert (len(before[1]), len(before[2])) == (4, 25)
    store.compact()
    assert len(bucket.files("measurements", ".parquet")) == 1
    _equal(_rows(bucket), before)
    with pytest.raises(results.ResultsError, match=r"is not a results folder|no such folder"):
        _open(Location("/bucket/other", bucket.filesystem, ObjectStore(MemoryStore())))


# Beside a running sweep


def _age_files(root: Path) -> None:
    for path in root.rglob("*.parquet"):
        _old(path)


def test_replaced_files_stay_for_a_grace_time(folder: Path) -> None:
    """Another program that has listed them can still open them; ours counts each row once."""
    store = Store(folder)
    synthetic.commit(store, [synthetic.trial_row("digits-mlp", "sgd", 8, 0)])
    before = _rows(folder)
    listed = sorted(folder.rglob("*.parquet"))
    store.compact(grace=60)
    assert all(path.exists() for path in listed)
    _equal(_rows(folder), before)
    merged = set(folder.rglob("*.parquet")) - set(listed)
    assert len(merged) == 2  # of studies there was one file
    store.compact(grace=60)
    synthetic.commit(store, [synthetic.trial_row("digits-mlp", "sgd", 8, 1)])
    store.compact(grace=60)
    assert all(path.exists() for path in listed)  # nothing is merged again before they are gone
    before = _rows(folder)
    _age_files(folder)
    store.compact(grace=60)
    assert not any(path.exists() for path in listed if path.parts[-3] != "studies")
    _equal(_rows(folder), before)
    store.compact()  # the end of the sweep
    assert _files(folder) == {"studies": 1, "trials": 1, "measurements": 1}
    _equal(_rows(folder), before)


def test_with_grace_a_file_of_dead_rows_alone_stays_too(folder: Path) -> None:
    store = Store(folder)
    store.compact()
    again = [synthetic.trial_row("digits-mlp", "sgd", 8, index) for index in range(4)]
    synthetic.commit(store, again)
    synthetic.commit(store, again)
    listed, before = sorted(folder.rglob("*.parquet")), _rows(folder)
    store.compact(grace=60)
    assert all(path.exists() for path in listed)
    _equal(_rows(folder), before)
    store.compact()
    _equal(_rows(folder), before)
    assert len(pq.read_table(folder / "trials")) == 48


def test_measurements_whose_trials_cannot_be_written_go(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full by then: the next attempt writes them again."""
    before, write = _files(folder), Location.write

    def full(self: Location, name: str, data: Any) -> None:
        if name.startswith("trials/"):
            raise results.ResultsError("cannot write trials: No space left on device")
        write(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(Location, "write", full)
        with pytest.raises(results.ResultsError, match="No space left"):
            synthetic.commit(Store(folder), [synthetic.trial_row("digits-mlp", "sgd", 8, 0)])
    assert _files(folder) == before


def test_at_the_end_of_a_complete_sweep_orphans_go_at_once(folder: Path) -> None:
    """A writer was killed between its two files, and the trial was trained again."""
    store = Store(folder)
    row = [synthetic.trial_row("digits-mlp", "sgd", 64, 0)]
    synthetic.commit(store, row)
    max((folder / "trials" / "synthetic").iterdir()).unlink()
    synthetic.commit(store, row)
    info = {"experiment": "synthetic", "study": "s"}
    other = claimed(folder, "pack", ["x"], info=info)
    store.compact("synthetic", idle=True)
    points = pq.read_table(folder / "measurements").to_pandas()
    assert points.duplicated(["trial", "step"]).any()  # its commit may be under way
    other.release()
    store.compact("synthetic", idle=True)
    points = pq.read_table(folder / "measurements").to_pandas()
    assert not points.duplicated(["trial", "step"]).any()
    assert len(points) == len(results.open(folder).measurements)
