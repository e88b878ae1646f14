"""Values as cells of CSV files, which are read on terminals too, and of JSON."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from results.errors import escaped
from results.storage.masking import masked

if TYPE_CHECKING:
    import pandas as pd

_ENDS = re.compile(r"([\n\t])")


def cell(text: str) -> str:
    """``text`` with lines that end in \\n, and escapes (``\\x1b``) for other control characters.

    A lone \\r would not be put in quotation marks, and what follows it would be a row."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(part if part in "\n\t" else escaped(part) for part in _ENDS.split(text))


def cells(frame: pd.DataFrame) -> pd.DataFrame:
    """A table with such texts and names of columns."""
    names = [cell(str(name)) for name in frame.columns]
    return with_texts(frame, cell).set_axis(names, axis=1)


def with_texts(frame: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    """A table with each text changed; columns in which none is different keep their type."""
    changed = frame.copy(deep=False)
    for place, (_, column) in enumerate(frame.items()):  # two columns may have one name
        if any(isinstance(value, str) and change(value) != value for value in column):
            clean = column.map(lambda value: change(value) if isinstance(value, str) else value)
            changed.isetitem(place, clean.array)
    return changed


def as_json(value: Any) -> Any:
    """The value in types of JSON, with all of its digits: NaN is null, infinities are texts, and
    keys in addresses are masked."""
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if hasattr(value, "tolist"):  # a NumPy scalar or array
        return as_json(value.tolist())
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, int | float | bool):
        return value
    return masked(str(value))
