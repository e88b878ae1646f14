"""A CSV or Parquet file of the user's as columns of cells, each with the line it stands in."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from results.counts import count
from results.errors import ResultsError
from results.schema import nearest

_NEEDED = "needed: batch_size and steps; or, for whole curves, batch_size, step and a metric"


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Cells are text, numbers, flags or ``None``; ``places`` tell where a row stands."""

    path: Path
    columns: dict[str, list[Any]]
    places: list[str]
    called: str | None = None
    """What its rows are called by; the file's name unless given."""

    @property
    def name(self) -> str:
        return self.called or self.path.stem

    @classmethod
    def read(cls, path: Path) -> Sheet:
        """Read a file by its suffix.

        Raises:
            ResultsError: it is missing, not text, broken, empty, or has a ragged or double column.
        """
        if not path.is_file():
            raise ResultsError(
                f"there is no file {path}",
                hint="name a CSV or Parquet file of your own; a results folder has no suffix",
            )
        sheet = _csv(path) if path.suffix.lower() == ".csv" else _parquet(path)
        if not sheet.places:
            raise ResultsError(f"{path} has no rows", hint=_NEEDED)
        return sheet

    def has(self, column: str) -> bool:
        return column in self.columns

    def require(self, column: str) -> None:
        """Refuse a sheet without ``column``, naming the nearest that it has."""
        if column in self.columns:
            return
        near = nearest(column, self.columns)
        raise ResultsError(
            f"{self.path} has no column {column!r}",
            hint=(f"rename {near!r}? " if near else "") + _NEEDED,
        )

    def renamed(self, columns: Mapping[str, str]) -> Sheet:
        """The same cells, the column ``columns[new]`` being called ``new``.

        Raises:
            ResultsError: there is no such column, one is given two names, or two have one name.
        """
        for new, old in columns.items():
            if old not in self.columns:
                near = nearest(old, self.columns)
                raise ResultsError(
                    f"{self.path} has no column {old!r} to read as {new!r}",
                    hint=f"did you mean {new}={near}?" if near else f"it has {self._all}",
                )
        names = {old: new for new, old in columns.items()}
        if len(names) < len(columns):
            double = next(old for old in names if [*columns.values()].count(old) > 1)
            raise ResultsError(
                f"column {double!r} of {self.path} is given two names", hint="name it once"
            )
        found: dict[str, list[Any]] = {}
        for old, cells in self.columns.items():
            new = names.get(old, old)
            if new in found or (new in columns and columns[new] != old):
                raise ResultsError(
                    f"{self.path} would have two columns {new!r}: its own and {columns[new]!r}",
                    hint=f"give its own another name too: {new}_old={new}",
                )
            found[new] = cells
        return replace(self, columns=found)

    @property
    def _all(self) -> str:
        return ", ".join(self.columns)

    def fail(self, row: int, message: str) -> ResultsError:
        return ResultsError(
            f"{self.path} {self.places[row]}: {message}",
            hint="mend that row or take it out: none is left out in silence",
        )

    def numeric(self, column: str) -> bool:
        """Whether every cell that is not empty is a number (NaN included)."""
        cells = [cell for cell in self.columns[column] if cell is not None]
        return bool(cells) and all(_number(cell) is not None for cell in cells)

    def numbers(
        self,
        column: str,
        *,
        least: float | None = None,
        above: float | None = None,
        whole: bool = False,
        empty: bool = False,
    ) -> list[float | None]:
        """The cells of a column as float64, checked; ``empty`` lets cells be missing or NaN.

        Raises:
            ResultsError: a cell that is not such a number, with its line.
        """
        values: list[float | None] = []
        for row, cell in enumerate(self.columns[column]):
            value = None if cell is None else _number(cell)
            if cell is not None and value is None:
                raise self.fail(row, f"{column} is {cell!r}, not a number")
            if value is None or math.isnan(value):
                if not empty:
                    raise self.fail(row, f"{column} is {'missing' if value is None else 'NaN'}")
                values.append(value)
                continue
            if math.isinf(value) and not empty:
                raise self.fail(row, f"{column} is {cell}")
            if (above is not None and value <= above) or (least is not None and value < least):
                wanted = f"above {above:g}" if above is not None else f"at least {least:g}"
                raise self.fail(row, f"{column} is {value:g}, but it must be {wanted}")
            if whole and value != int(value):
                raise self.fail(row, f"{column} is {value:g}, but it must be whole")
            values.append(value)
        return values


def _csv(path: Path) -> Sheet:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path} is not UTF-8 text", hint="save it as CSV, UTF-8") from error
    except OSError as error:
        raise ResultsError(f"cannot read {path}: {error.strerror}") from error
    head = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(",;\t", key=head.count)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter, skipinitialspace=True)
    header: list[str] | None = None
    rows: list[list[str]] = []
    places: list[str] = []
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
        rows.append(cells)
        places.append(f"line {reader.line_num}")
    if header is None:
        raise ResultsError(f"{path} is empty", hint=_NEEDED)
    double = next((name for name in header if name and header.count(name) > 1), None)
    if double:
        raise ResultsError(f"{path} has two columns {double!r}")
    columns: dict[str, list[Any]] = {
        name: [row[at].strip() or None for row in rows] for at, name in enumerate(header) if name
    }
    return Sheet(path=path, columns=columns, places=places)


def _parquet(path: Path) -> Sheet:
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise ResultsError(f"{path} is not a whole Parquet file") from error
    columns = {name: table[name].to_pylist() for name in table.column_names}
    places = [f"row {row}" for row in range(1, table.num_rows + 1)]
    return Sheet(path=path, columns=columns, places=places)


def _number(cell: Any) -> float | None:
    if isinstance(cell, bool):
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None
