"""Numbers as people write them: ``1,024``, ``0,53`` in files of semicolons, ``1k``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results.errors import ResultsError
from results.user_tables.names import is_metric
from results.user_tables.table_file import number

_WITH_COMMA = re.compile(r"[-+]?[\d.]*\d,\d[\d.,]*(?:e[-+]?\d+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
_GROUPED_BY_POINTS = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+")
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgbt])(i?)", re.IGNORECASE)
_POWERS = {"k": 1, "m": 2, "g": 3, "b": 3, "t": 4}
_HINT = "write decimal points, and no separators of thousands"


def without_commas(path: Path, columns: Sequence[list[str]], delimiter: str) -> list[list[str]]:
    """Text cells of a file, numbers with commas as Python reads them.

    A comma is a decimal one where one in the file can be nothing else (``0,53``), and separates
    thousands in other files.

    Raises:
        ResultsError: both occur, or a file of semicolons has ``1,024`` alone, which may be either.
    """
    numeric = [_may_be_numbers(cells) for cells in columns]
    numbers = [cell for cells, has in zip(columns, numeric, strict=True) for cell in cells if has]
    commas = [cell for cell in numbers if "," in cell]
    if not commas:
        return [*columns]
    decimal = next((cell for cell in commas if not _THOUSANDS.fullmatch(cell)), None)
    plain = next((cell for cell in numbers if _has_no_decimal_comma(cell)), None)
    if decimal and plain:
        raise ResultsError(f"{path}: {decimal} has a decimal comma, but {plain} none", hint=_HINT)
    pointed = any(re.fullmatch(r"-?\d+\.\d+", cell) for cells in columns for cell in cells)
    if not (decimal or plain or pointed) and delimiter == ";":
        example = commas[0]
        readings = f"{example.replace(',', '')} or {example.replace(',', '.')}"
        raise ResultsError(f"{path}: {example} may be {readings}", hint=_HINT)

    def read(cell: str) -> str:
        return cell.replace(".", "").replace(",", ".") if decimal else cell.replace(",", "")

    return [
        [read(cell) for cell in cells] if has or (decimal and _is_grouped(cells)) else cells
        for cells, has in zip(columns, numeric, strict=True)
    ]


def without_percent(name: str, cells: list[str]) -> list[str]:
    """``75.3`` for ``75.3%``, where each number of a metric is one of percent."""
    share = name == "relative_error" or not is_metric(name)
    percent = not share and all(cell.endswith("%") for cell in cells if cell)
    return [cell.removesuffix("%").rstrip() for cell in cells] if percent else cells


def _may_be_numbers(cells: Sequence[str]) -> bool:
    """Whether a column has numbers with commas, and else numbers and at most two words: marks of
    what was not measured."""
    texts = {cell for cell in cells if cell and number(cell) is None}
    commas = {cell for cell in texts if _WITH_COMMA.fullmatch(cell)}
    others = texts - commas
    return bool(commas) and len(others) <= 2 and not any("," in text for text in others)


def _has_no_decimal_comma(cell: str) -> bool:
    """Whether a number's comma, or its point, is none of a text with decimal commas."""
    if "," in cell:
        return cell.count(",") > 1 or cell.rfind(".") > cell.find(",")
    return "." in cell and number(cell) is not None and not _GROUPED_BY_POINTS.fullmatch(cell)


def _is_grouped(cells: Sequence[str]) -> bool:
    """Whether each point of a column separates thousands, as it may where commas are decimal."""
    pointed = [cell for cell in cells if "." in cell]
    numbers = all(number(cell) is not None for cell in cells if cell)
    return bool(pointed) and numbers and all(map(_GROUPED_BY_POINTS.fullmatch, pointed))


def amounts(cells: Sequence[Any]) -> list[Any]:
    """Cells with ``1k`` or ``1.5M`` as numbers; ``k`` is 1,024 in ``1ki``, and where all others are
    powers of two, as batch sizes are."""
    matches = [_SUFFIXED.fullmatch(cell) if isinstance(cell, str) else None for cell in cells]
    if not any(matches):
        return [*cells]
    plain = [number(cell) for cell, match in zip(cells, matches, strict=True) if not match]
    given = [value for value in plain if value is not None]
    mantissas = [float(match[1]) for match in matches if match]
    powers = [v >= 1 and v % 1 == 0 and int(v).bit_count() == 1 for v in (*given, *mantissas)]
    binary = any(value > 4 for value in given) and all(powers)
    made = [*cells]
    for at, match in enumerate(matches):
        if match:
            base = 1024 if binary or match[3] else 1000
            value = float(match[1]) * float(base) ** _POWERS[match[2].lower()]
            made[at] = int(value) if value % 1 == 0 else value
    return made
