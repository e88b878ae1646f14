"""The reader: which rows count, which files are refused, and what a frame looks like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import results
from results import reader
from results.errors import ResultsError
from results.schema import REPLACES_KEY, SCHEMAS, TABLE_KEY, VERSION_KEY
from results.storage.dataset import encode, replaced_by
from results.store import Store


def test_frames(folder: Path) -> None:
    run = results.open(folder)
    assert len(run.trials) == 48
    assert len(run.studies) == 12
    assert len(run.sources) == 0
    assert len(run.measurements) == 12 * (4 + 5 + 6 + 10)
    assert run.trials is run.trials
    best = run.trials.groupby(["optimizer", "batch_size"]).steps_to_target.min()
    assert best["sgd", 8] == 8.0


def test_workload_fields_are_columns(folder: Path) -> None:
    trials = results.open(folder).trials
    assert set(trials.width.dropna()) == {64}
    assert set(trials.depth.dropna()) == {2}
    assert trials[trials.workload == "mnist-fc"].width.isna().all()
    assert list(trials)[: len(SCHEMAS["trials"])] == SCHEMAS["trials"].names


def test_a_field_named_like_a_column_stays_in_the_json(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    fields: dict[str, Any] = {
        "momentum": 7,
        "depths": [1, 2],
        "rate": 0.5,
        "bias": True,
        "mixed": 1,
    }
    other = {"mixed": "a"}
    trials: list[dict[str, Any]] = [
        {"trial": "a", "fields": fields},
        {"trial": "b", "fields": other},
        {"trial": "c"},
    ]
    store.commit("e", measurements=[], trials=trials)
    found = results.open(tmp_path / "runs").trials
    assert found.momentum.isna().all()
    assert found.depths[0] == "[1, 2]"
    assert found.rate[0] == 0.5
    assert bool(found.bias[0]) is True
    assert found.mixed.tolist()[:2] == ["1", "a"]


def test_seeds_keep_every_bit(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    seeds = [2**63 - 1, 2**62 + 1, None]
    trials = [{"trial": str(at), "seed": seed} for at, seed in enumerate(seeds)]
    store.commit("e", measurements=[], trials=trials)
    found = results.open(tmp_path / "runs").trials.seed
    assert [int(found[0]), int(found[1])] == seeds[:2]
    assert found[2] is pd.NA


def test_only_the_wanted_columns_are_read(folder: Path) -> None:
    found = results.open(folder).read_measurements(["step", "validation_error"])
    assert list(found) == ["step", "validation_error"]
    assert len(found) == 300
    with pytest.raises(ResultsError, match="measurements have no column 'stepp'"):
        results.open(folder).read_measurements(["stepp"])


def test_older_files_read_with_the_newer_columns_empty(folder: Path) -> None:
    file = next((folder / "trials" / "synthetic").iterdir())
    table = pq.read_table(file).drop_columns(["micro_batch", "evaluation_ratio", "learning_rate"])
    pq.write_table(table, file)
    trials = results.open(folder).trials
    assert len(trials) == 48
    assert trials.learning_rate.isna().sum() == 4


def _newer(file: Path) -> None:
    table = pq.read_table(file)
    metadata = {**table.schema.metadata, VERSION_KEY: b"999"}
    pq.write_table(table.replace_schema_metadata(metadata), file)


def _foreign(file: Path) -> None:
    pq.write_table(pa.table({"trial": ["x"]}), file)


def _other_table(file: Path) -> None:
    table = pq.read_table(file)
    metadata = {**table.schema.metadata, TABLE_KEY: b"studies"}
    pq.write_table(table.replace_schema_metadata(metadata), file)


def _other_type(file: Path) -> None:
    table = pq.read_table(file)
    pq.write_table(table.set_column(0, "experiment", pa.array([1] * len(table))), file)


def _half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _holed(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4:2000] = b"\0" * 1996
    file.write_bytes(data)


def _replacing(listed: bytes) -> Any:
    def damage(file: Path) -> None:
        table = pq.read_table(file)
        metadata = {**table.schema.metadata, REPLACES_KEY: listed}
        pq.write_table(table.replace_schema_metadata(metadata), file)

    return damage


_NOT_NAMES = [
    *(
        b"",
        b"{",
        b"null",
        b"7",
        b'"a.parquet"',
        b'{"a.parquet": 1}',
        b"[7]",
        b'["a.parquet", null]',
    ),
    *(b'[["a.parquet"]]', b'["../a.parquet"]', b'["/a.parquet"]', b'["b/a.parquet"]', b'["a"]'),
    *(b'[".a.parquet"]', b'["..parquet"]', b'["a\\u0000.parquet"]', b'["b\\\\a.parquet"]'),
    *(b'["\\ud800.parquet"]', b'["%s.parquet"]' % (b"a" * 300), b"\xff\xfe", b"[" * 50_000),
]


@pytest.mark.parametrize("listed", _NOT_NAMES, ids=lambda listed: repr(listed)[:20])
def test_what_is_no_list_of_files_beside_it(listed: bytes) -> None:
    schema = pa.schema([], metadata={REPLACES_KEY: listed})
    assert replaced_by("trials/e/x.parquet", schema) is None


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_replacing(b'["../a.parquet"]'), "does not say which files it replaces"),
        (_newer, "was written by a newer batchscale: schema 999"),
        (_foreign, "is not a {} file of batchscale"),
        (_other_table, "is not a {} file of batchscale"),
        (_other_type, "column experiment holds int64, not string"),
        (_half, "is not a whole Parquet file"),
        (_empty, "is not a whole Parquet file"),
        (_holed, "is not a(ll)? whole Parquet files?"),
    ],
)
@pytest.mark.parametrize("table", ["trials", "measurements"])
def test_a_bad_file_is_named_and_nothing_is_changed(
    folder: Path, damage: Any, says: str, table: str
) -> None:
    file = sorted((folder / table / "synthetic").iterdir())[5]
    damage(file)
    before = {path: path.read_bytes() for path in folder.rglob("*.parquet")}
    uses = {
        "read": lambda: getattr(results.open(folder), table),
        "query": lambda: results.open(folder).query(f"SELECT * FROM {table}"),
        "compact": lambda: Store(folder).compact(),
    }
    if table == "trials":
        uses["poll"] = lambda: Store(folder).trials()
    for name, use in uses.items():
        with pytest.raises(ResultsError, match=says.format(table)) as caught:
            use()
        assert "\n" not in str(caught.value), name
        assert caught.value.hint, name
        if damage is not _holed:  # found while many files are read: the folder is named
            assert str(file) in str(caught.value), name
    if damage is _holed:  # its footer is whole: a compaction gets as far as reading it
        before = {file: before[file]}
    assert {path: path.read_bytes() for path in folder.rglob("*.parquet")}.items() >= before.items()


def test_temporary_and_other_files_are_passed_over(folder: Path) -> None:
    trials = folder / "trials" / "synthetic"
    (trials / ".x.parquet.1234.tmp").write_bytes(b"half")
    (trials / "README.md").write_text("notes")
    assert len(results.open(folder).trials) == 48


def test_published_holds_a_dataset_or_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("published", "own"):
        monkeypatch.setitem(reader.PACKAGED, name, folder)
        assert len(results.open(name).trials) == 48
        monkeypatch.setitem(reader.PACKAGED, name, tmp_path / "nothing")
        with pytest.raises(ResultsError, match=f"holds no {name} results"):
            results.open(name)


@pytest.mark.parametrize(
    ("name", "near"), [("publishd", "published"), ("Published", "published"), ("onw", "own")]
)
def test_a_misspelt_name_of_packaged_data(
    name: str, near: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ResultsError, match=f"no results at {name}: there is no such") as caught:
        results.open(name)
    assert str(caught.value.hint).startswith(f"did you mean {near}, the packaged data?")


@pytest.mark.parametrize("name", ["runs", "gone/published"])
def test_other_missing_folders_are_not_taken_for_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ResultsError, match="no such folder") as caught:
        results.open(name)
    assert str(caught.value.hint).startswith("batchscale sweep writes to results/runs")


def test_an_address_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="cannot open nowhere://x"):
        results.open("nowhere://x")
    with pytest.raises(ResultsError, match=r"^a DataFrame is no source: "):
        results.open(pd.DataFrame({"batch_size": [1], "steps": [9]}))  # type: ignore[arg-type]
    opened = Store(tmp_path / "runs")
    assert len(results.open((tmp_path / "runs").as_uri()).trials) == 0
    assert opened.root == str(tmp_path / "runs")


def test_json_columns_are_json(folder: Path) -> None:
    trials = results.open(folder).trials
    for column in ("fields", "metaparameters", "versions"):
        assert all(isinstance(json.loads(text), dict) for text in trials[column])


def test_a_reader_meets_files_that_go_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction between the listing and the reading: the files are listed again."""
    from results.storage import dataset

    names = dataset.names
    calls = 0

    def compacting(*given: Any) -> list[str]:
        nonlocal calls
        found = names(*given)
        calls += 1
        if calls == 1:
            monkeypatch.setattr(dataset, "names", names)
            Store(folder).compact()
        return found

    opened = results.open(folder)
    assert len(opened.trials) == 48
    monkeypatch.setattr(dataset, "names", compacting)
    assert len(opened.measurements) == 300
    assert calls == 1


def test_encode_keeps_the_metadata() -> None:
    table = pq.read_table(pa.BufferReader(encode(SCHEMAS["trials"].empty_table(), ["a.parquet"])))
    assert json.loads(table.schema.metadata[b"batchscale.replaces"]) == ["a.parquet"]
    assert table.schema.metadata[TABLE_KEY] == b"trials"
