"""Display names of optimizers: the class of a user's file, not the file.

New rows hold the name that is displayed. Rows of older results have ``my_opt.py:Lion``; readers get
``Lion``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMN = "optimizer"


def class_name(text: str) -> str:
    """``Lion`` of ``my_opt.py:Lion``; any other name as it is."""
    file, _, name = text.rpartition(":")
    return name if name and file.endswith(".py") else text


def names(texts: Iterable[str]) -> dict[str, str]:
    """The display name of each of these optimizers among the others.

    Classes of one name in files of several names are distinguished: ``Lion (first)`` of
    ``first.py:Lion``.
    """
    texts = list(dict.fromkeys(texts))
    files: dict[str, set[str]] = {}
    for text in texts:
        if class_name(text) != text:
            files.setdefault(class_name(text), set()).add(_stem(text))
    return {
        text: f"{class_name(text)} ({_stem(text)})"
        if len(files.get(class_name(text), ())) > 1 and class_name(text) != text
        else class_name(text)
        for text in texts
    }


def with_names(table: pa.Table) -> pa.Table:
    """``table`` (trials or studies) with the display name of each optimizer."""
    encoded = table[_COLUMN].combine_chunks().dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    called = names(texts)
    if all(text == name for text, name in called.items()):
        return table
    import pyarrow as pa

    column = pa.array([called[text] for text in texts], pa.string()).take(encoded.indices)
    at = table.column_names.index(_COLUMN)
    return table.set_column(at, table.schema.field(at), column)


def _stem(text: str) -> str:
    return PurePosixPath(text.rpartition(":")[0]).stem
