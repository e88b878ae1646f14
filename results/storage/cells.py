"""Texts as cells of CSV files, which are read on terminals too."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from results.errors import escaped

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
