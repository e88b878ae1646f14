"""Parquet files in a results folder that somebody else has made: one clear line, or no effect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import results
from results.errors import ResultsError
from results.schema import SCHEMAS, VERSION_KEY

ODD = "optimizer\x1b[31m\n\u202e"


def with_version(version: bytes) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.replace_schema_metadata(
        {**table.schema.metadata, VERSION_KEY: version}
    )


def with_column(name: str, values: pa.Array) -> Callable[[pa.Table], pa.Table]:
    """In the place of the column of that name."""

    def change(table: pa.Table) -> pa.Table:
        metadata = table.schema.metadata
        changed = table.set_column(table.schema.get_field_index(name), name, values)
        return changed.replace_schema_metadata(metadata)

    return change


def texts(name: str, text: str) -> Callable[[pa.Table], pa.Table]:
    return lambda table: with_column(name, pa.array([text] * len(table)))(table)


def nested(depth: int) -> pa.Array:
    value: Any = 1
    kind = pa.int64()
    for _ in range(depth):
        value, kind = {ODD: value}, pa.struct([(ODD, kind)])
    return pa.array([value], kind)


def lists(depth: int) -> pa.Array:
    kind = pa.int64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return pa.nulls(1, kind)


REFUSED: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "a version of 5,000 digits": (with_version(b"9" * 5000), "is not a trials file of batchscale"),
    "a version that is no number": (with_version(b"seven"), "is not a trials file of batchscale"),
    "digits of another script": (with_version("²".encode()), "is not a trials file of batchscale"),
    "a version that is not UTF-8": (with_version(b"\xff"), "is not a trials file of batchscale"),
    "a negative version": (with_version(b"-1"), "is not a trials file of batchscale"),
    "text for numbers": (with_column("batch_size", pa.array(["8"])), "column batch_size holds str"),
    "bytes for text": (with_column("optimizer", pa.array([b"sgd"])), "column optimizer holds bin"),
    "dates": (
        with_column("steps_to_target", pa.array([0], pa.date32())),
        "column steps_to_target holds date32",
    ),
    "structs, 60 deep": (with_column("optimizer", nested(60)), "column optimizer holds struct<"),
    "lists, 20 deep": (with_column("optimizer", lists(20)), "column optimizer holds list<"),
    "a name of 1 MB": (texts("optimizer", "x" * 10**6), "a text of 1,000,000 characters"),
    "control characters": (texts("optimizer", ODD), "column optimizer holds 'optimizer"),
    "an endless number": (texts("fields", "9" * 10**5), "column fields holds"),
    "another role": (texts("role", "x" * 10**6), "column role holds 'xxx"),
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Callable[[pa.Table], pa.Table]], Path]:
    def written(change: Callable[[pa.Table], pa.Table]) -> Path:
        schema = SCHEMAS["trials"]
        row = {
            "trial": "t", "study": "s", "experiment": "e", "batch_size": 8, "role": "search",
            "status": "COMPLETE", "optimizer": "sgd", "run": "r",
        }  # fmt: skip
        table = pa.Table.from_pylist([row], schema=schema)
        for name in SCHEMAS:
            (tmp_path / "runs" / name / "e").mkdir(parents=True)
        pq.write_table(change(table), tmp_path / "runs" / "trials" / "e" / "x.parquet")
        return tmp_path / "runs"

    return written


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line(
    write: Callable[[Callable[[pa.Table], pa.Table]], Path], name: str
) -> None:
    change, message = REFUSED[name]
    root = write(change)
    for read in (lambda run: run.trials, lambda run: run.query("FROM trials")):
        with pytest.raises(ResultsError) as caught:
            read(results.open(root))
        said = f"{caught.value}{caught.value.hint}"
        assert message in said
        assert len(said) < 5000
        assert said.isprintable()


def test_columns_that_no_version_has_are_left_out(
    write: Callable[[Callable[[pa.Table], pa.Table]], Path],
) -> None:
    def change(table: pa.Table) -> pa.Table:
        metadata = table.schema.metadata
        for name, values in {ODD: pa.array(["x"]), "deep": nested(30), "": pa.array([1])}.items():
            table = table.append_column(name, values)
        return table.replace_schema_metadata(metadata)

    run = results.open(write(change))
    assert run.trials["trial"].tolist() == ["t"]
    assert not {ODD, "deep", ""} & {*run.trials.columns, *run.query("FROM trials").columns}
