"""``fsck`` finds what is wrong in a results folder, and ``compact`` goes beside a sweep."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import batchscale as bs
from experiments.execution.sweep import sweep
from results.run_state.claims import Claims
from results.schema import SCHEMAS
from results.storage.compact import GRACE_SECONDS
from results.store import Store
from tests.batchscale.conftest import Command
from tests.experiments.fakes import FakeTraining
from tests.experiments.test_sweep import experiment, run


@pytest.fixture(scope="module")
def _swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("upkeep") / "runs"
    run(root, experiment(keep="off", trials=4))
    return root


@pytest.fixture
def root(_swept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(_swept, tmp_path / "runs"))


def only(root: Path, table: str) -> Path:
    (file,) = (root / table / "fake").glob("*.parquet")
    return file


def edit(
    root: Path, table: str, column: str, change: Callable[[list[object]], list[object]]
) -> None:
    path = only(root, table)
    rows = pq.read_table(path)
    field = rows.schema.field(column)
    place = rows.schema.get_field_index(column)
    values = pa.array(change(rows[column].to_pylist()), field.type)
    rows = rows.set_column(place, field, values)
    pq.write_table(rows.replace_schema_metadata(SCHEMAS[table].metadata), path)


def old(path: Path) -> None:
    past = time.time() - GRACE_SECONDS - 60
    os.utime(path, (past, past))


def test_a_complete_sweep_has_no_defect(root: Path, command: Command) -> None:
    before = sorted(path for path in root.rglob("*") if path.is_file())
    answer = command("fsck", root)
    assert (answer.status, answer.out, answer.err) == (0, "3 files of rows, no defect\n", "")
    assert json.loads(command("fsck", root, "--json").out) == []
    assert sorted(path for path in root.rglob("*") if path.is_file()) == before


def first_changed(value: object) -> Callable[[list[object]], list[object]]:
    return lambda values: [value, *values[1:]]


def cut(root: Path) -> None:
    path = only(root, "trials")
    path.write_bytes(path.read_bytes()[:-100])


def damaged(root: Path) -> None:
    """The footer is whole, and a page is not."""
    path = only(root, "measurements")
    data = bytearray(path.read_bytes())
    data[100:400] = bytes(300)
    path.write_bytes(data)


def trials_lost(root: Path) -> None:
    only(root, "trials").unlink()


def replaced_left(root: Path) -> None:
    Store(root).commit("fake", measurements=[], trials=[{"trial": "x", "study": "s"}])
    Store(root).compact(grace=60)


def trained_again(root: Path) -> None:
    row = bs.open(root).results.trial_rows.to_pylist()[0]
    Store(root).commit("fake", measurements=[], trials=[{**row, "stop_reason": "error"}])


def temporary(root: Path) -> None:
    left = root / "trials" / "fake" / ".x.parquet.0123.tmp"
    left.write_bytes(b"half")
    old(left)


def unbounded(root: Path) -> None:
    """An evaluation of a part of its split that says nothing of the whole."""
    edit(root, "measurements", "evaluated_examples", lambda rows: [100, 100, *rows[2:]])
    edit(root, "measurements", "interval_metric", first_changed("validation_error"))
    edit(root, "measurements", "interval_low", first_changed(0.1))
    edit(root, "measurements", "interval_high", first_changed(0.2))


def renamed(root: Path) -> None:
    (root / "trials" / "fake").rename(root / "trials" / "another")


DEFECTS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "cut": (cut, "is not a whole Parquet file", "move it out of the results folder"),
    "damaged": (damaged, "is not a whole Parquet file", "move it out of the results folder"),
    "foreign": (
        lambda root: (root / "trials" / "fake" / "notes.txt").write_text("mine"),
        "trials/fake/notes.txt is not a file of results",
        "move it out of the results folder",
    ),
    "temporary": (temporary, "was left by a writer that died", "batchscale compact"),
    "no mark": (
        lambda root: (root / "dataset.json").unlink(),
        "dataset.json is missing",
        "put it back",
    ),
    "broken mark": (
        lambda root: (root / "dataset.json").write_text("{}"),
        "dataset.json does not name a dataset",
        "delete it",
    ),
    "no studies": (
        lambda root: only(root, "studies").unlink(),
        "without a row of the study",
        "give the sweep's command again",
    ),
    "no trials": (trials_lost, "without a row of that commit", "put the file back"),
    "no measurements": (
        lambda root: only(root, "measurements").unlink(),
        "without measurements",
        "put it back",
    ),
    "superseded": (trained_again, "is superseded", "batchscale compact drops them"),
    "replaced": (replaced_left, "replaced by merged ones", "batchscale compact deletes"),
    "another folder": (renamed, "rows of another experiment than its folder", "move it"),
    "an edited trial": (
        lambda root: edit(root, "trials", "trial", first_changed("0" * 20)),
        "1 trial (00000000000000000000 …) whose id does not follow from the row",
        "a row was edited",
    ),
    "an edited study": (
        lambda root: edit(root, "studies", "study", first_changed("0" * 20)),
        "1 study (00000000000000000000 …) whose id does not follow from the experiment",
        "a row was edited",
    ),
    "two in one place": (
        lambda root: edit(root, "trials", "index", lambda values: [values[0]] * len(values)),
        "of search tables with several trials",
        "a row was edited",
    ),
    "copied rows": (
        lambda root: edit(root, "measurements", "step", lambda values: [1] * len(values)),
        "stand twice",
        "move the file away",
    ),
    "a part without bounds": (
        unbounded,
        "1 row of a part of a split lacks its size, or low and high ends for the whole",
        "move their file away",
    ),
    "another study": (
        lambda root: edit(root, "measurements", "study", first_changed("0" * 20)),
        "name another study than the trial's row",
        "a row was edited",
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_each_defect_is_a_line_with_what_to_do(root: Path, command: Command, name: str) -> None:
    make, what, do = DEFECTS[name]
    make(root)
    answer = command("fsck", root)
    assert answer.status == 1
    (line,) = [line for line in answer.out.splitlines() if what in line]
    assert do in line.split(what)[1]
    rows = json.loads(command("fsck", root, "--json").out)
    assert any(what in row["what"] and row["do"].startswith(do) for row in rows)


def test_rows_of_a_trial_that_differ_in_what_its_id_follows_from(root: Path) -> None:
    row = bs.open(root).results.trial_rows.to_pylist()[0]
    Store(root).commit("fake", measurements=[], trials=[{**row, "batch_size": 7}])
    (defect,) = [each for each in bs.fsck(root).defects if "several values" in each.what]
    assert "1 trial" in defect.what
    assert "batch_size" in defect.what


def test_measurements_of_a_commit_under_way_are_no_defect(root: Path) -> None:
    trials_lost(root)
    assert Claims(root).take("p", ["t"], info={"experiment": "fake", "study": "s"})
    assert not any("of that commit" in each.what for each in bs.fsck(root).defects)
    old(only(root, "measurements"))
    assert any("of that commit" in each.what for each in bs.fsck(root).defects)


def test_code_of_a_file_is_not_run(root: Path, command: Command) -> None:
    edit(root, "studies", "experiment_yaml", lambda texts: ["workload: evil.py:W\n"] * len(texts))
    answer = command("fsck", root)
    assert "note: fake: ids are not checked: it names a Python file" in answer.err


def test_packaged_data_need_no_mark() -> None:
    assert not any("dataset.json" in each.what for each in bs.fsck("published").defects)


def test_what_is_no_results_folder(tmp_path: Path, command: Command) -> None:
    for verb in ("fsck", "compact"):
        answer = command(verb, tmp_path / "none")
        assert answer.status == 1
        assert "there is no such folder" in answer.err
    assert not (tmp_path / "none").exists()


def test_compact_merges_beside_a_sweep_and_the_next_deletes(root: Path, command: Command) -> None:
    assert command("compact", root).out == "3 files of rows: nothing to merge\n"
    run(root, experiment(name="other", keep="off", trials=4, batch_size="32"))
    again = experiment(keep="off", trials=4, batch_size="64, 128, 256")
    whole = sorted(root.rglob("*.parquet"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "compact", lambda *_, **__: None)
        sweep(again, results=root, address="none", trainer=FakeTraining)
    trials = bs.open(root).trials.sort_values("trial").reset_index(drop=True)
    assert Claims(root).take("p", ["t"], info={"experiment": "fake", "study": "s"})
    answer = command("compact", root)
    assert "Files that were replaced stay for ten minutes" in answer.out
    assert all(path.exists() for path in whole)
    assert bs.open(root).trials.sort_values("trial").reset_index(drop=True).equals(trials)
    for path in root.rglob("*.parquet"):
        old(path)
    assert command("compact", root).status == 0
    assert len(list((root / "trials" / "fake").glob("*.parquet"))) == 1
    assert bs.open(root).trials.sort_values("trial").reset_index(drop=True).equals(trials)
