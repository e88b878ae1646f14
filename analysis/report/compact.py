"""Plain values for JSON, numbers no longer than a picture can show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DIGITS = 5
"""Significant digits of a number that is not whole."""


def compact(value: Any) -> Any:
    """``value`` with whole numbers as they are, others to ``DIGITS`` significant digits, and what
    is not finite as None; mappings and sequences all the way down."""
    if isinstance(value, Mapping):
        return {str(key): compact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [compact(item) for item in value]
    if hasattr(value, "item") and not isinstance(value, str):  # a numpy number
        value = value.item()
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    if value.is_integer() and abs(value) < 2**53:
        return int(value)
    return float(f"{value:.{DIGITS}g}")


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns: a name once, not once a row; a column without any value is left out."""
    names = dict.fromkeys(name for row in rows for name in row)
    found = {name: [compact(row.get(name)) for row in rows] for name in names}
    return {n: cells for n, cells in found.items() if any(cell is not None for cell in cells)}
