"""JSON: an object a line, a list of objects, or one object with lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.user_tables.formats.format import Format
from results.user_tables.formats.lines import flat, text_of
from results.user_tables.formats.settings import FILES
from results.user_tables.names import AXES, COUNTS, plain
from results.user_tables.table_file import TableFile

_AXES = {*AXES["step"], *AXES["tokens"], *AXES["examples"], *COUNTS}


def json_table(path: Path) -> TableFile:
    """Each line an object, or one JSON value of several rows (``_rows``); keys are the columns, and
    one that a row lacks is empty.

    Raises:
        ResultsError: it is not JSON, or a row is no object.
    """
    text = text_of(path)
    rows: list[Any] = []
    places: list[str] = []
    try:
        rows = _rows(json.loads(text))
        places = [f"row {number}" for number in range(1, len(rows) + 1)]
    except (ValueError, RecursionError):
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                if rows and text.endswith(line):  # its writer was killed
                    break
                raise ResultsError(f"{path} line {number} is not JSON: {error}") from error
            places.append(f"line {number}")
    for place, row in zip(places, rows, strict=True):
        if not isinstance(row, dict):
            raise ResultsError(f"{path} {place} is no JSON object")
    return TableFile.of_rows(path, [flat(row) for row in rows], places)


def _rows(read: Any) -> list[Any]:
    """The rows of a list; of an object with a list of evaluations, or with a list for each column,
    beside which its other values are those of each row; of Sacred's metrics; or the object."""
    if not isinstance(read, dict):
        return read if isinstance(read, list) else [read]
    values = [*read.values()]
    if values and all(isinstance(each, dict) and {"steps", "values"} <= {*each} for each in values):
        pairs = [(name, zip(e["steps"], e["values"], strict=False)) for name, e in read.items()]
        return [{"step": step, name: value} for name, each in pairs for step, value in each]
    lists = {key: each for key, each in read.items() if isinstance(each, list) and each}
    others = {key: each for key, each in read.items() if key not in lists}
    columns = [dict(zip(lists, cells, strict=True)) for cells in zip(*lists.values(), strict=False)]
    first = next(iter(lists.values()), [])
    rows = first if len(lists) == 1 and isinstance(first[0], dict) else columns
    whole = all(len(each) == len(rows) for each in lists.values())
    if whole and rows and _AXES & {*map(plain, rows[0])}:
        return [{**others, **row} for row in rows]
    return [read]


def _read(path: Path) -> TableFile | None:
    return None if path.name in FILES else json_table(path)


METRICS = Format(name="metrics.json", files=("metrics.json",), read=json_table)
"""Of Sacred, and as lines of Detectron2."""
FORMAT = Format(name="JSON files", files=("*.json",), read=_read, is_run=False)
"""In a folder without logs of other formats."""
