"""Rows that no writer of ours has written: the column and its value are named."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import results
from results.schema import SCHEMAS
from results.storage.values import check, mapping, parsed
from results.store import Store
from tests.results import synthetic

Broken = Callable[[str, str, Any], results.Results]


@pytest.fixture
def broken(tmp_path: Path) -> Broken:
    """``broken("trials", "role", "x")``: results in which that column holds that value."""

    def make(table: str, column: str, value: Any) -> results.Results:
        store = Store(tmp_path / "runs")
        row = synthetic.trial_row("digits-mlp", "sgd", 8, 0)
        store.add_studies([synthetic.study_row("digits-mlp", "sgd", 8)])
        synthetic.commit(store, [row])
        (file,) = (tmp_path / "runs" / table).rglob("*.parquet")
        rows = pq.ParquetFile(file).read()
        field = SCHEMAS[table].field(column)
        place = rows.column_names.index(column)
        changed = rows.set_column(place, field, pa.array([value] * len(rows), field.type))
        pq.write_table(changed.replace_schema_metadata(SCHEMAS[table].metadata), file)
        return results.open(tmp_path / "runs")

    return make


@pytest.mark.parametrize(
    ("table", "column", "value", "said"),
    [
        ("trials", "batch_size", 0, "column batch_size holds 0: it must be a number of at least 1"),
        ("trials", "keep", -1, "column keep holds -1"),
        ("trials", "relative_error", -0.1, "column relative_error holds -0.1"),
        ("trials", "steps_to_target", math.inf, "column steps_to_target holds inf"),
        ("trials", "steps_run", -(2**62), "column steps_run holds -4.61169e+18"),
        ("trials", "role", "walk", "column role holds 'walk': it must be one of search"),
        ("trials", "status", "DONE", "column status holds 'DONE': it must be one of COMPLETE"),
        ("trials", "technique", "bfloat16", "column technique holds 'bfloat16': it is not JSON"),
        ("trials", "technique", "[1]", "column technique holds '[1]': it has another shape"),
        ("trials", "fields", "{" * 5000, "column fields holds '{{{"),
        ("trials", "fields", "[" * 50_000, "not JSON"),
        ("studies", "targets", '[{"a": 1}]', "column targets holds '[{"),
        ("studies", "notes", "a note", "column notes holds 'a note': it is not JSON"),
        ("studies", "search_space", '{"learning_rate":{"log":[1]}}', "column search_space holds"),
        ("studies", "trials_wanted", 0, "column trials_wanted holds 0"),
    ],
)
def test_a_value_that_means_nothing(
    broken: Broken, table: str, column: str, value: Any, said: str
) -> None:
    run = broken(table, column, value)
    with pytest.raises(results.ResultsError) as raised:
        getattr(run, table)
    assert f"runs/{table}: " in str(raised.value)
    assert said in str(raised.value)
    assert "move its file out" in (raised.value.hint or "")


@pytest.mark.parametrize("column", ["batch_size", "role", "fields", "steps_to_target", "keep"])
def test_nulls_are_never_wrong(broken: Broken, column: str) -> None:
    assert broken("trials", column, None).trials[column].isna().all()
    check(pa.table({"steps_to_target": [math.nan, 3.0]}), "here")


@pytest.mark.parametrize("packaged", ["published", "own"])
def test_what_is_packaged_is_right(packaged: str) -> None:
    run = results.open(packaged)
    for name in ("trials", "studies"):
        check(run.source.table(name), name)


def test_text_that_is_read_where_it_is_used() -> None:
    assert mapping('{"a":1}', "metrics") == {"a": 1}
    for text in ("[1]", "{", "[" * 100_000):
        with pytest.raises(results.ResultsError, match="column metrics holds"):
            mapping(text, "metrics")
    assert parsed("[1]", "targets") == [1]
