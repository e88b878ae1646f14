"""Tables with a row for each metric, or for each part of the data, or with cells of many settings,
with a column for each."""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Sequence
from typing import Any

from results.errors import ResultsError
from results.user_tables import names
from results.user_tables.formats.lines import flat
from results.user_tables.table_file import TableFile

_FOLDED = ("config", "summary", "params", "hparams")


def unfolded(table: TableFile) -> TableFile:
    """With a column for each setting of cells such as ``{"lr": 0.1}``, in JSON or as Python prints
    it: tables of runs that are made with the API of W&B have them."""
    for name in [each for each in table.columns if each.lower() in _FOLDED]:
        cells = [_mapping(cell) for cell in table.columns[name]]
        if None in cells:
            continue
        rows = [flat(cell, f"{name.lower()}.") for cell in cells if cell is not None]
        made = TableFile.of_rows(table.path, rows, table.places).columns
        table = table.with_columns({}, drop=(name,))
        table = table.with_columns({**made, **table.columns})
    return table


def _mapping(cell: Any) -> dict[str, Any] | None:
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(str(cell))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(value, dict):
            return {str(key): each for key, each in value.items()}
    return None


def widened(table: TableFile) -> TableFile:
    """The same rows, each with its value in the column of its metric; others there are empty.

    Columns ``key`` and ``value`` name the metric; one such as ``split`` names its part of the data.

    Raises:
        ResultsError: a metric has the name of a column.
    """
    named = names.candidates(table, names.KEYS, config=False)
    key = next((name for name in named if not table.numeric(name)), None)
    value = next(names.candidates(table, ("value", "metric_value"), config=False), None)
    if key and value:
        keys = [str(cell) for cell in table.columns[key]]
        table = _spread(table, keys, {each: {each: value} for each in keys}, (key, value))
    part = next(names.candidates(table, names.SPLIT, config=False), None)
    if part is None:
        return table
    parts = [names.PARTS.get(str(cell).lower(), "") for cell in table.columns[part]]
    if "" in parts or len({*parts}) < 2:
        return table
    metrics = [name for name in table.columns if names.is_metric(name) and table.numeric(name)]
    columns = {each: {f"{each}{name}": name for name in metrics} for each in parts}
    return _spread(table, parts, columns, (part, *metrics))


def _spread(
    table: TableFile, keys: Sequence[str], columns: dict[str, dict[str, str]], drop: Collection[str]
) -> TableFile:
    """``columns`` says, by key, which column takes up which one's cells in the rows of that key."""
    made = {}
    for key, each in columns.items():
        for new, old in each.items():
            if table.has(new) and new not in drop:
                raise ResultsError(
                    f"{table.path} has a column {new!r}, and rows of a metric {new!r}",
                    hint="rename the column",
                )
            cells = zip(table.columns[old], keys, strict=True)
            made[new] = [cell if of == key else None for cell, of in cells]
    return table.with_columns(made, drop=drop)
