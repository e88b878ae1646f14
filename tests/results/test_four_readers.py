"""Pandas, pyarrow, DuckDB and Polars read the files with nothing of ours, and miss no column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pytest

from results.schema import SCHEMAS


def _pandas(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder)


def _pyarrow(folder: Path) -> pd.DataFrame:
    return ds.dataset(folder).to_table().to_pandas()


def _duckdb(folder: Path) -> pd.DataFrame:
    with duckdb.connect() as session:
        return session.sql(f"SELECT * FROM '{folder}/*/*.parquet'").to_arrow_table().to_pandas()


def _polars(folder: Path) -> pd.DataFrame:
    return pd.DataFrame(pl.read_parquet(folder / "*" / "*.parquet").to_dicts())


READERS = [_pandas, _pyarrow, _duckdb, _polars]


@pytest.mark.parametrize("read", READERS)
def test_every_row_and_column_of_every_table(
    folder: Path, read: Callable[[Path], pd.DataFrame]
) -> None:
    for name, rows in {"studies": 12, "trials": 48, "measurements": 300}.items():
        # What an interrupted writer leaves is no file to any of them.
        (folder / name / "synthetic" / ".x.parquet.1234.tmp").write_bytes(b"half")
        frame = read(folder / name)
        assert list(frame) == SCHEMAS[name].names
        assert len(frame) == rows
        if name != "measurements":
            assert set(frame.optimizer) == {"sgd", "adam"}
            assert set(frame.workload) == {"digits-mlp", "mnist-fc"}
    points = read(folder / "measurements")
    # Only adam's files hold these: a reader that took the first file's columns would lose them.
    assert points.test_error.notna().sum() == points.metrics.notna().sum() == 150
    trials = read(folder / "trials")
    assert trials.momentum.notna().sum() == 24
    assert int(trials.seed.max()) == 2**62 + 3
    best = trials.groupby(["workload", "optimizer", "batch_size"]).steps_to_target.min()
    assert (best == 8).all()
    assert len(best) == 12
