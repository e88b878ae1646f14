"""A log as columns of cells, each row with its place."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from results.errors import ResultsError, escaped, nearest
from results.storage.masking import masked

NEEDED = (
    "needed: batch_size and steps; or, for whole curves, batch_size, step and a metric; or, for "
    "final losses, batch_size, examples (or tokens) and a loss"
)


def unzipped(path: Path) -> Path:
    """The path without the ``.gz`` of a compressed file."""
    return path.with_suffix("") if path.suffix == ".gz" else path


@dataclass(frozen=True, kw_only=True)
class TableFile:
    """Cells are text, numbers, flags or ``None``; ``places`` are the lines of the rows."""

    path: Path
    columns: dict[str, list[Any]]
    places: list[str]
    called: str | None = None
    """The experiment that its rows become; the file's name unless given."""
    logged: bool = False
    """Whether rows of a run are in the order in which they were logged, so that the later of two
    values of one step counts."""
    means: Mapping[str, str] = field(default_factory=dict)
    """What our names are of theirs, where these differ: a column, or what is computed."""

    @property
    def name(self) -> str:
        return self.called or escaped(unzipped(self.path).stem)

    @classmethod
    def of(
        cls,
        path: Path,
        header: Sequence[str],
        columns: Sequence[Sequence[Any]],
        places: Sequence[str],
    ) -> TableFile:
        """A table of ``columns`` under ``header``; what has no name is left out.

        Raises:
            ResultsError: two columns of one name, or no rows.
        """
        if not places:
            raise ResultsError(f"{path} has no rows", hint=NEEDED)
        cells: dict[str, list[Any]] = {}
        for name, each in zip(header, columns, strict=True):
            read = [_cell(cell) for cell in each]
            if name and cells.setdefault(name, read) != read:
                raise ResultsError(f"{path} has two columns {name!r}", hint="rename one of them")
        return cls(path=path, columns=cells, places=[*places])

    @classmethod
    def of_rows(
        cls, path: Path, rows: Sequence[Mapping[str, Any]], places: Sequence[str]
    ) -> TableFile:
        """A table of mappings; a key that a row lacks is an empty cell.

        Raises:
            ResultsError: no rows.
        """
        header = [*dict.fromkeys(name for row in rows for name in row)]
        return cls.of(path, header, [[row.get(name) for row in rows] for name in header], places)

    def has(self, column: str) -> bool:
        return column in self.columns

    def with_columns(
        self, columns: Mapping[str, list[Any]], *, drop: Collection[str] = ()
    ) -> TableFile:
        """The same rows with these columns, without those named in ``drop``."""
        kept = {name: cells for name, cells in self.columns.items() if name not in drop}
        return replace(self, columns={**kept, **columns})

    def renamed(self, columns: Mapping[str, str]) -> TableFile:
        """The same cells, the column ``columns[new]`` being called ``new``.

        Raises:
            ResultsError: one is given two names, or two have one name.
        """
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
        means = {new: old for new, old in columns.items() if new != old}
        return replace(self, columns=renamed, means={**self.means, **means})

    @property
    def computed(self) -> list[str]:
        """What was computed of columns, in sentences."""
        signs = ("*", "+", " / ")
        return [f"{n} is {text}" for n, text in self.means.items() if any(s in text for s in signs)]

    def rows(self, places: Sequence[int]) -> TableFile:
        """Some of the rows, in this order."""
        columns = {name: [cells[at] for at in places] for name, cells in self.columns.items()}
        return replace(self, columns=columns, places=[self.places[at] for at in places])

    def require(self, column: str) -> None:
        """Refuse a table without ``column``, naming the nearest that it has."""
        if column in self.columns:
            return
        near = nearest(column, self.columns, form="{}")
        rename = f"rename {near!r}? " if near else ""
        given = shlex.quote(f"{column}={near or 'THEIRS'}")
        raise ResultsError(
            f"{self.path} has no column {column!r}",
            hint=f"{rename}{NEEDED}; it has {', '.join(self.columns)}; batchscale import takes "
            f"--map {given}",
        )

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
