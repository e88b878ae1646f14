"""Columns under other names, and computed ones, as ``--map`` gives them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from results.errors import ResultsError, nearest
from results.user_tables.names import short
from results.user_tables.table_file import TableFile, number


def mapped(table: TableFile, given: Mapping[str, str]) -> TableFile:
    """The table with the columns ``given``, ours to theirs.

    Theirs is a column, which is called otherwise then, or a sum of products of columns and numbers
    (``per_device*accumulate*8``, ``step+1``), which is a column more.

    Raises:
        ResultsError: there is no such column, one is given two names, or two have one name.
    """
    columns = {ours: name for ours, text in given.items() if (name := _column(table, text))}
    made = {new: computed(table, new, text) for new, text in given.items() if new not in columns}
    for ours in made:
        parts = re.split(r"\s*[+*]\s*", given[ours].strip())
        if table.has(ours) and ours not in (*columns.values(), *parts):
            raise ResultsError(
                f"{table.path} would have two columns {ours!r}: {given[ours]!r} and {ours!r}",
                hint=f"rename the column {ours!r} too: {ours}_old={ours}",
            )
    kept = table.renamed(columns).with_columns(made)
    return replace(kept, means={**table.means, **given})


def computed(table: TableFile, ours: str, text: str) -> list[Any]:
    """The sum of products of columns and numbers that ``text`` is; None where one is empty.

    Raises:
        ResultsError: a column that is not there, or a cell that is no number.
    """
    total: list[float | None] = [0.0] * len(table.places)
    for term in text.split("+"):
        factors = [_factor(table, ours, part.strip()) for part in term.split("*")]
        products = [
            None if None in row else math.prod(each for each in row if each is not None)
            for row in zip(*factors, strict=True)
        ]
        total = [
            None if a is None or b is None else a + b for a, b in zip(total, products, strict=True)
        ]
    return [int(each) if each is not None and each % 1 == 0 else each for each in total]


def _factor(table: TableFile, ours: str, text: str) -> list[float | None]:
    name = _column(table, text)
    if name is not None:
        return table.numbers(name, empty=True)
    value = number(text)
    if value is None or not math.isfinite(value):
        has = f"it has {', '.join(table.columns)}"
        raise ResultsError(
            f"{table.path} has no column {text!r} to read as {ours!r}",
            hint=nearest(text, table.columns, has, form=f"did you mean {ours}={{}}?"),
        )
    return [value] * len(table.places)


def _column(table: TableFile, text: str) -> str | None:
    """The column of that name, or the one that has it without what its tool puts before it."""
    if table.has(text):
        return text
    columns = [name for name in table.columns if short(name, table) == text]
    return columns[0] if len(columns) == 1 else None
