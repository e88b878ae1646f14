"""CSV, JSON Lines and Parquet: histories and runs of Weights & Biases, Ray's progress.csv,
exports of MLflow and TensorBoard, data frames of Optuna, and tables of one's own."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from results.counts import count
from results.errors import ResultsError
from results.storage.disk_errors import ERRORS, line_of
from results.user_tables.formats.charts import of_chart
from results.user_tables.formats.format import Format
from results.user_tables.formats.json_files import json_table
from results.user_tables.formats.lines import text_of
from results.user_tables.numbers import without_commas, without_percent
from results.user_tables.table_file import NEEDED, TableFile, unzipped


def read_table_file(path: Path) -> TableFile:
    """Read a file by its suffix.

    Raises:
        ResultsError: it is missing, not text, broken, empty, or has a ragged or double column.
    """
    if not path.is_file():
        raise ResultsError(
            f"there is no file {path}",
            hint="name a CSV, JSON Lines or Parquet file of your own; a results folder has no "
            "suffix",
        )
    readers = {
        ".csv": _csv,
        ".tsv": _csv,
        ".txt": _csv,
        **dict.fromkeys((".jsonl", ".ndjson", ".json"), json_table),
    }
    return of_chart(readers.get(unzipped(path).suffix.lower(), _parquet)(path))


def _csv(path: Path) -> TableFile:
    text = text_of(path)
    head = next((line for line in text.splitlines() if line.strip() and line[0] != "#"), "")
    delimiter = max(",;\t ", key=lambda mark: head.count(mark) if mark != " " else 0.5)
    # In files, \n, \r\n or \r ends a line; other characters that do so for Python are text.
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    header: list[str] | None = None
    first: list[str] = []
    rows: list[list[str]] = []
    places: list[str] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells) or cells[0].startswith("#"):
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                first = cells
                continue
            if cells == first:  # what was appended to the file has its header again
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
        raise ResultsError(f"{path} is empty", hint=NEEDED)
    columns = [without_percent(n, [row[at] for row in rows]) for at, n in enumerate(header)]
    return TableFile.of(path, header, without_commas(path, columns, delimiter), places)


def _parquet(path: Path) -> TableFile:
    try:
        table = pq.ParquetFile(path).read()
        header = [name.strip() for name in table.column_names]
        columns = [column.to_pylist() for column in table.columns]
    except UnicodeDecodeError as error:
        raise ResultsError(f"{path} holds text that is not UTF-8") from error
    except ERRORS as error:
        broken = isinstance(error, pa.ArrowException) or not getattr(error, "errno", None)
        known = "a whole Parquet file" if path.suffix == ".parquet" else "a log of a known format"
        why = f"is not {known}" if broken else f"cannot be read: {line_of(error)}"
        raise ResultsError(f"{path} {why}") from error
    return TableFile.of(path, header, columns, [f"row {n}" for n in range(1, table.num_rows + 1)])


PATTERNS = ("*.csv", "*.tsv", "*.jsonl", "*.ndjson", "*.parquet")
FORMAT = Format(name="a table", files=PATTERNS, read=read_table_file, is_run=False)
