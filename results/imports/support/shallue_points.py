"""Measurements of many trials at once: one parse for all files of one header.

A file is about 370 lines, and opening a parser on it takes longer than reading it. So the lines of
hundreds of files are parsed together; only where one of them does not parse, or may not have a row
a line, is each parsed alone, and the broken ones are named with their line.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from results.imports.support import shallue_facts as facts
from results.imports.support.shallue_tree import MEASUREMENTS, TrialFolder, UnplacedError
from results.schema import METRIC_COLUMNS


@dataclass(frozen=True)
class _Part:
    """The lines of one file below its header, and the trial to which it belongs."""

    trial: int
    lines: bytes

    @property
    def rows(self) -> int:
        return self.lines.count(b"\n")


def points(trials: Sequence[TrialFolder]) -> tuple[pa.Table, dict[int, str]]:
    """The measurements of ``trials`` and, by place in ``trials``, why a file cannot be placed.

    The table has the columns trial (place in ``trials``, int32), step, the measured columns of the
    schema, and ``metrics`` (JSON text) if any other metric is measured. Rows of a trial are
    contiguous, ordered by step.
    """
    refused: dict[int, str] = {}
    groups: dict[tuple[str, ...], list[_Part]] = {}
    for place, trial in enumerate(trials):
        header, _, lines = trial.measurements.partition(b"\n")
        if not header.strip() or not lines.strip():
            if trial.status == "COMPLETE":
                refused[place] = f"it is COMPLETE, but {MEASUREMENTS} holds no measurement"
            continue
        try:
            names = _names(header)
        except UnplacedError as reason:
            refused[place] = str(reason)
            continue
        whole = lines if lines.endswith(b"\n") else lines + b"\n"
        groups.setdefault(names, []).append(_Part(place, whole))
    tables = []
    for names, parts in groups.items():
        tables += _parse(names, parts, refused)
    empty = pa.schema([("trial", pa.int32()), ("step", pa.int64())]).empty_table()
    if not tables:
        return empty, refused
    return pa.concat_tables(tables, promote_options="default").combine_chunks(), refused


@functools.lru_cache(maxsize=1024)
def _names(header: bytes) -> tuple[str, ...]:
    """The schema's names of a file's columns; where it has none, the metric's."""
    try:
        columns = next(csv.reader([header.decode().lstrip("\ufeff").strip()]))
    except UnicodeDecodeError as error:
        raise UnplacedError(f"{MEASUREMENTS} is not text") from error
    if "step" not in columns:
        raise UnplacedError(f"{MEASUREMENTS} has no column step: {', '.join(columns)[:80]}")
    names = []
    for column in columns:
        split, slash, metric = column.partition("/")
        if column != "step" and not (slash and metric and split in facts.SPLITS):
            raise UnplacedError(
                f"{MEASUREMENTS}: column {column!r} is not a metric of train, val or test"
            )
        plain = facts.METRICS.get(metric, metric)
        names.append(column if column == "step" else f"{facts.SPLITS[split]}_{plain}")
    if len(set(names)) < len(names):
        raise UnplacedError(f"{MEASUREMENTS} has a column twice")
    return tuple(names)


def _parse(
    names: tuple[str, ...], parts: Sequence[_Part], refused: dict[int, str]
) -> list[pa.Table]:
    rows = [part.rows for part in parts]
    try:
        data = b"".join(part.lines for part in parts)
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        if b'"' in data or b"\r" in data:
            raise UnplacedError("a row need not be a line")
        table = _read(names, data)
        if table.num_rows != sum(rows):
            raise UnplacedError("some lines are blank")
    except UnplacedError:  # only the single files show to which trial a row belongs, and the error
        tables = [_alone(names, part, refused) for part in parts]
        return [_with_metrics(_sorted(table)) for table in tables if table is not None]
    code = np.repeat(np.array([part.trial for part in parts], np.int32), rows)
    return [_with_metrics(_sorted(table.add_column(0, "trial", pa.array(code))))]


def _alone(names: tuple[str, ...], part: _Part, refused: dict[int, str]) -> pa.Table | None:
    try:
        table = _read(names, part.lines)
    except UnplacedError as reason:
        refused[part.trial] = f"{MEASUREMENTS} {_first_wrong(names, part.lines) or reason}"
        return None
    code = np.full(table.num_rows, part.trial, np.int32)
    return table.add_column(0, "trial", pa.array(code))


def _first_wrong(names: tuple[str, ...], lines: bytes) -> str | None:
    """The first line that has an error by itself, with its number in the file and the reason."""
    for number, line in enumerate(lines.splitlines(), 2):
        try:
            if line:
                _read(names, line)
        except UnplacedError as reason:
            return f"line {number}: {reason}"
    return None


def _read(names: tuple[str, ...], data: bytes) -> pa.Table:
    kinds = {name: pa.int64() if name == "step" else pa.float64() for name in names}
    try:
        table = _read_as(kinds, data)
    except pa.ArrowInvalid:
        try:  # a step written as 1000.0
            table = _read_as(dict.fromkeys(names, pa.float64()), data)
            table = table.cast(pa.schema(list(kinds.items())))
        except pa.ArrowInvalid as error:
            line = str(error).splitlines()[0].removeprefix("CSV parse error: ")
            raise UnplacedError(f"does not parse: {line[:160]}") from error
    if table["step"].null_count or (pc.min(table["step"]).as_py() or 0) < 0:
        raise UnplacedError("a step is missing or negative")
    return table


def _read_as(kinds: dict[str, pa.DataType], data: bytes) -> pa.Table:
    return arrow_csv.read_csv(
        pa.BufferReader(data),
        read_options=arrow_csv.ReadOptions(column_names=list(kinds), block_size=4 << 20),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=False),
        convert_options=arrow_csv.ConvertOptions(column_types=kinds, null_values=["", "None"]),
    )


def _sorted(table: pa.Table) -> pa.Table:
    """Rows of each trial by step; those of one step stay in their order."""
    trial, step = table["trial"].to_numpy(), table["step"].to_numpy()
    if not ((trial[1:] == trial[:-1]) & (step[1:] < step[:-1])).any():
        return table
    return table.take(pa.array(np.lexsort((step, trial))))


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
