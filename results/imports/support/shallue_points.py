"""The measurements of the release's trials as columns of the schema."""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from results.imports.support import shallue_facts as facts
from results.imports.support.shallue_tree import MEASUREMENTS, TrialFolder, UnplacedError
from results.schema import METRIC_COLUMNS


def points(trials: Sequence[TrialFolder]) -> tuple[pa.Table, dict[int, str]]:
    """The measurements of ``trials`` and, by place in ``trials``, why a file cannot be placed.

    The table has the columns trial (place in ``trials``, int32), step, the measured columns of the
    schema, and ``metrics`` (JSON text) if any other metric is measured. Rows of a trial are
    contiguous, ordered by step.
    """
    refused: dict[int, str] = {}
    tables = [pa.schema([("trial", pa.int32()), ("step", pa.int64())]).empty_table()]
    for place, trial in enumerate(trials):
        header, _, lines = trial.measurements.partition(b"\n")
        try:
            if header.strip() and lines.strip():
                table = _read(_names(header), lines)
                trial_column = pa.array(np.full(len(table), place, np.int32))
                tables.append(table.add_column(0, "trial", trial_column))
            elif trial.status == "COMPLETE":
                raise UnplacedError("holds no measurement, but the trial is COMPLETE")
        except UnplacedError as reason:
            refused[place] = f"{MEASUREMENTS} {reason}"
    every = pa.concat_tables(tables, promote_options="default").combine_chunks()
    return _with_metrics(every), refused


@functools.lru_cache(maxsize=1024)
def _names(header: bytes) -> tuple[str, ...]:
    """The schema's names of a file's columns; where it has none, the metric's."""
    try:
        columns = next(csv.reader([header.decode().lstrip("\ufeff").strip()]))
    except UnicodeDecodeError as error:
        raise UnplacedError("is not text") from error
    if "step" not in columns:
        raise UnplacedError(f"has no column step: {', '.join(columns)[:80]}")
    names = []
    for column in columns:
        split, slash, metric = column.partition("/")
        if column != "step" and not (slash and metric and split in facts.SPLITS):
            raise UnplacedError(f"has a column {column!r}: no metric of train, val or test")
        plain = facts.METRICS.get(metric, metric)
        names.append(column if column == "step" else f"{facts.SPLITS[split]}_{plain}")
    if len(set(names)) < len(names):
        raise UnplacedError("has a column twice")
    return tuple(names)


def _read(names: tuple[str, ...], lines: bytes) -> pa.Table:
    """The rows by step; those of one step stay in their order."""
    kinds = {name: pa.int64() if name == "step" else pa.float64() for name in names}
    try:
        try:
            table = _read_as(kinds, lines)
        except pa.ArrowInvalid:  # a step written as 1000.0
            table = _read_as(dict.fromkeys(names, pa.float64()), lines)
            table = table.cast(pa.schema(list(kinds.items())))
    except pa.ArrowInvalid as error:
        line = str(error).splitlines()[0].removeprefix("CSV parse error: ")
        raise UnplacedError(f"does not parse: {line[:160]}") from error
    if table["step"].null_count or (pc.min(table["step"]).as_py() or 0) < 0:
        raise UnplacedError("does not parse: a step is missing or negative")
    descends = (np.diff(table["step"].to_numpy()) < 0).any()
    return table.sort_by("step") if descends else table


def _read_as(kinds: dict[str, pa.DataType], lines: bytes) -> pa.Table:
    return arrow_csv.read_csv(
        pa.BufferReader(lines),
        read_options=arrow_csv.ReadOptions(column_names=list(kinds), use_threads=False),
        convert_options=arrow_csv.ConvertOptions(column_types=kinds, null_values=["", "None"]),
    )


def _with_metrics(table: pa.Table) -> pa.Table:
    """Metrics that have no column as JSON text, without those that are missing."""
    others = sorted(set(table.column_names) - {"trial", "step", *METRIC_COLUMNS})
    if not others:
        return table
    cells = []
    for name in others:
        column = table[name]
        text = pc.cast(column, pa.string())
        quoted = pc.binary_join_element_wise('"', text, '"', "")
        cell = pc.if_else(pc.is_finite(column), text, quoted)
        # Do not use a join that skips nulls: it loses the rows in which all are null.
        cells.append(pc.fill_null(pc.binary_join_element_wise(f',"{name}":', cell, ""), ""))
    inner = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*cells, ""), 1)
    metrics = pc.binary_join_element_wise("{", inner, "}", "")
    metrics = pc.if_else(pc.equal(inner, ""), pa.scalar(None, pa.string()), metrics)
    return table.drop_columns(others).append_column("metrics", metrics)
