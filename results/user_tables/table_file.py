"""A user's CSV or Parquet file as columns of cells, each row with its line."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from results.counts import count
from results.errors import ResultsError, escaped, nearest
from results.storage.disk_errors import ERRORS, line_of
from results.storage.masking import masked

_NEEDED = (
    "needed: batch_size and steps; or, for whole curves, batch_size, step and a metric; or, for "
    "final losses, batch_size, examples (or tokens) and a loss"
)


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """Cells are text, numbers, flags or ``None``; ``places`` are the lines of the rows."""

    path: Path
    columns: dict[str, list[Any]]
    places: list[str]
    called: str | None = None
    """The experiment that its rows become; the file's name unless given."""

    @property
    def name(self) -> str:
        return self.called or escaped(self.path.stem)

    @classmethod
    def read(cls, path: Path) -> TableFile:
        """Read a file by its suffix.

        Raises:
            ResultsError: it is missing, not text, broken, empty, or has a ragged or double column.
        """
        if not os.path.isfile(path):
            raise ResultsError(
                f"there is no file {path}",
                hint="name a CSV, JSON Lines or Parquet file of your own; a results folder has no "
                "suffix",
            )
        read = {".csv": _csv, ".jsonl": _json_lines}.get(path.suffix.lower(), _parquet)
        header, columns, places = read(path)
        double = next((name for name in header if name and header.count(name) > 1), None)
        if double:
            raise ResultsError(f"{path} has two columns {double!r}")
        if not places:
            raise ResultsError(f"{path} has no rows", hint=_NEEDED)
        named = {name: cells for name, cells in zip(header, columns, strict=True) if name}
        return cls(
            path=path,
            columns={name: [_cell(cell) for cell in cells] for name, cells in named.items()},
            places=places,
        )

    def has(self, column: str) -> bool:
        return column in self.columns

    def require(self, column: str) -> None:
        """Refuse a table without ``column``, naming the nearest that it has."""
        if column in self.columns:
            return
        hint = nearest(column, self.columns, _NEEDED, form=f"rename {{!r}}? {_NEEDED}")
        raise ResultsError(f"{self.path} has no column {column!r}", hint=hint)

    def renamed(self, columns: Mapping[str, str]) -> TableFile:
        """The same cells, the column ``columns[new]`` being called ``new``.

        Raises:
            ResultsError: there is no such column, one is given two names, or two have one name.
        """
        for new, old in columns.items():
            if old not in self.columns:
                raise ResultsError(
                    f"{self.path} has no column {old!r} to read as {new!r}",
                    hint=nearest(
                        old,
                        self.columns,
                        f"it has {', '.join(self.columns)}",
                        form=f"did you mean {new}={{}}?",
                    ),
                )
        names = {old: new for new, old in columns.items()}
        if len(names) < len(columns):
            double = next(old for old in names if [*columns.values()].count(old) > 1)
            raise ResultsError(
                f"column {double!r} of {self.path} is given two names", hint="name it once"
            )
        renamed: dict[str, list[Any]] = {}
        for old, cells in self.columns.items():
            new = names.get(old, old)
            if new in renamed or (new in columns and columns[new] != old):
                raise ResultsError(
                    f"{self.path} would have two columns {new!r}: {columns[new]!r} and {new!r}",
                    hint=f"rename the column {new!r} too: {new}_old={new}",
                )
            renamed[new] = cells
        return replace(self, columns=renamed)

    def fail(self, row: int, message: str, hint: str | None = None) -> ResultsError:
        """The error of a row, with its line."""
        return ResultsError(
            f"{self.path} {self.places[row]}: {message}", hint=hint or "correct or remove that row"
        )

    def numeric(self, column: str) -> bool:
        """Whether every cell that is not empty is a number (NaN included)."""
        cells = [cell for cell in self.columns[column] if cell is not None]
        return bool(cells) and all(number(cell) is not None for cell in cells)

    def numbers(
        self,
        column: str,
        *,
        least: float | None = None,
        above: float | None = None,
        whole: bool = False,
        empty: bool = False,
    ) -> list[float | None]:
        """The cells of a column as float64, checked; ``empty`` lets cells be missing or NaN. Of
        ``whole`` numbers NaN is a missing one.

        Raises:
            ResultsError: a cell that is not such a number, with its line.
        """
        values: list[float | None] = []
        for row, cell in enumerate(self.columns[column]):
            value = None if cell is None else number(cell)
            if cell is not None and value is None:
                raise self.fail(row, f"{column} is '{cell}', not a number")
            if value is None or math.isnan(value):
                if not empty:
                    raise self.fail(row, f"{column} is {'missing' if value is None else 'NaN'}")
                values.append(None if whole else value)
                continue
            if math.isinf(value) and (whole or not empty):
                raise self.fail(row, f"{column} is {cell}")
            if (above is not None and value <= above) or (least is not None and value < least):
                wanted = f"above {above:g}" if above is not None else f"at least {least:g}"
                raise self.fail(row, f"{column} is {value:g}, but it must be {wanted}")
            if whole and value != int(value):
                raise self.fail(row, f"{column} is {value:g}, but it must be whole")
            if whole and abs(value) >= 2**63:
                raise self.fail(row, f"{column} is {value:g}, which is beyond 64 bits")
            values.append(value)
        return values


Read = tuple[list[str], list[list[Any]], list[str]]
"""The header, the cells of each of its columns, and the line of each row."""


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from error
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error


def _json_lines(path: Path) -> Read:
    """Each line an object; its keys are the columns, and one that it lacks is empty."""
    rows: list[dict[str, Any]] = []
    places: list[str] = []
    for number, line in enumerate(_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ResultsError(f"{path} line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ResultsError(f"{path} line {number} is no JSON object")
        rows.append(row)
        places.append(f"line {number}")
    header = [*dict.fromkeys(name for row in rows for name in row)]
    return header, [[row.get(name) for row in rows] for name in header], places


def _csv(path: Path) -> Read:
    text = _text(path)
    head = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(",;\t", key=head.count)
    # In files, \n, \r\n or \r ends a line; other characters that do so for Python are text.
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    header: list[str] | None = None
    rows: list[list[str]] = []
    places: list[str] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells) or cells[0].startswith("#"):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                continue
            if len(cells) != len(header):
                raise ResultsError(
                    f"{path} line {reader.line_num}: {count(len(cells), 'value')} under "
                    f"{count(len(header), 'column')}"
                )
            rows.append([cell.strip() for cell in cells])
            places.append(f"line {reader.line_num}")
    except csv.Error as error:
        raise ResultsError(
            f"{path} line {reader.line_num}: {error}", hint="is a quote left open?"
        ) from error
    if header is None:
        raise ResultsError(f"{path} is empty", hint=_NEEDED)
    return header, [[row[at] for row in rows] for at in range(len(header))], places


def _parquet(path: Path) -> Read:
    try:
        table = pq.ParquetFile(path).read()
        header = [name.strip() for name in table.column_names]
        columns = [column.to_pylist() for column in table.columns]
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path} holds text that is not UTF-8") from error
    except ERRORS as error:
        broken = isinstance(error, pa.ArrowException) or not getattr(error, "errno", None)
        why = "is not a whole Parquet file" if broken else f"cannot be read: {line_of(error)}"
        raise ResultsError(f"{path} {why}") from error
    return header, columns, [f"row {row}" for row in range(1, table.num_rows + 1)]


def _cell(value: Any) -> Any:
    """Text, a number, a flag or None: all other types of Parquet become one of them.

    Cells go into tables, labels and reports: keys in addresses are masked, and characters that no
    font has are escaped.
    """
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    elif isinstance(value, (date, time, timedelta)):
        value = value.isoformat() if isinstance(value, (date, time)) else str(value)
    elif isinstance(value, (list, tuple, dict)):
        value = json.dumps(value, default=str)
    if isinstance(value, str):
        return escaped(masked(value)) or None
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


def number(cell: Any) -> float | None:
    """A cell as float64 (NaN included); None where it is no number."""
    if isinstance(cell, bool):
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None
