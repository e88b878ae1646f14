"""Rows into tables and back: full schemas, JSON, and what a column refuses."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.errors import ResultsError
from results.schema import (
    METRIC_COLUMNS,
    SCHEMA_VERSION,
    SCHEMAS,
    TABLE_KEY,
    VERSION_KEY,
    json_text,
    table,
)
from results.storage.dataset import encode
from tests.marks import quick


@pytest.mark.parametrize("name", SCHEMAS)
def test_an_empty_row_has_every_column(name: str) -> None:
    found = table(name, [{}])
    assert found.schema.equals(SCHEMAS[name], check_metadata=True)
    assert found.schema.metadata[VERSION_KEY] == str(SCHEMA_VERSION).encode()
    assert found.schema.metadata[TABLE_KEY] == name.encode()
    assert all(column.null_count == 1 for column in found.columns)


def test_an_unknown_column_names_the_nearest() -> None:
    with pytest.raises(ResultsError, match="trials have no column 'batchsize'") as caught:
        table("trials", [{"batchsize": 8}])
    assert caught.value.hint == "did you mean batch_size?"


def test_a_value_of_another_kind_names_the_column() -> None:
    with pytest.raises(ResultsError, match="column batch_size of trials holds int64"):
        table("trials", [{"batch_size": "eight"}])
    with pytest.raises(ResultsError, match="column seed of trials"):
        table("trials", [{"seed": 2**70}])


def test_metrics_go_to_their_columns_and_the_rest_to_json() -> None:
    row = {"metrics": {"validation_error": 0.25, "validation_top5": np.float64(0.5)}}
    found = table("measurements", [row]).to_pylist()[0]
    assert found["validation_error"] == 0.25
    assert json.loads(found["metrics"]) == {"validation_top5": 0.5}
    assert table("measurements", [{"metrics": {"test_loss": 1.0}}])["metrics"][0].as_py() is None


def test_not_a_number_stays_a_value_and_json_stays_json() -> None:
    found = table("measurements", [{"metrics": {"train_loss": math.nan, "x": math.inf}}])
    assert math.isnan(found["train_loss"][0].as_py())
    assert json.loads(found["metrics"][0].as_py()) == {"x": "inf"}


def test_json_text_is_canonical() -> None:
    assert json_text({"b": np.int64(1), "a": [True, None, 0.5]}) == '{"a":[true,null,0.5],"b":1}'


_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.timestamp("us", tz="UTC"): st.datetimes(),
}


@settings(max_examples=40, deadline=None)
@given(st.data())
@pytest.mark.parametrize("name", quick(SCHEMAS, 1))
def test_rows_come_back_from_parquet(name: str, data: st.DataObject) -> None:
    columns = {
        field.name: _VALUES[field.type]
        for field in SCHEMAS[name]
        if not pa.types.is_timestamp(field.type)
    }
    row = st.fixed_dictionaries({}, optional=columns)
    rows = data.draw(st.lists(row, max_size=4))
    read = pq.read_table(io.BytesIO(encode(table(name, rows))))
    assert read.schema.equals(SCHEMAS[name], check_metadata=True)
    for given_row, found in zip(rows, read.to_pylist(), strict=True):
        assert {key: found[key] for key in given_row} == given_row
        assert all(found[key] is None for key in found.keys() - given_row.keys())


def test_files_are_zstd() -> None:
    metadata = pq.read_metadata(io.BytesIO(encode(table("measurements", [{"step": 1}]))))
    chunks = [metadata.row_group(0).column(at) for at in range(metadata.num_columns)]
    assert {chunk.compression for chunk in chunks} == {"ZSTD"}
    assert set(METRIC_COLUMNS) <= {chunk.path_in_schema for chunk in chunks}
