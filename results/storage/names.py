"""Plain names: names that a file or a folder inside a results folder may have.

Names also come from claims, snapshots and the metadata of Parquet files, which anybody who can
write into the folder may have made up. One that is not plain (``../x``, ``/etc/x``) could lead out
of it.
"""

from __future__ import annotations

import re
from typing import Any, TypeGuard

from results.errors import ResultsError

RULE = "letters, digits, _ . + - and a letter or digit first"
"""The rule for plain names, for a hint."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_LONGEST = 200
"""File systems take 255 bytes, and a temporary name is longer than the file's own."""


def is_plain(name: Any) -> TypeGuard[str]:
    """Whether ``name`` is a plain name, whatever it is: no separator, no leading dot."""
    return isinstance(name, str) and len(name) <= _LONGEST and _PLAIN.fullmatch(name) is not None


def is_file_name(name: Any) -> TypeGuard[str]:
    """Whether ``name`` can only be a file beside the one that names it.

    More than plain names are: a file of the dataset may have been renamed by hand.
    """
    if not isinstance(name, str) or not 0 < len(name) <= 255:
        return False
    return name.isprintable() and not name.startswith(".") and not set(name) & set("/\\")


def experiment_name(name: str) -> str:
    """``name``, if it can name a folder.

    Raises:
        ResultsError: it cannot (a slash, a leading dot or underscore, a blank).
    """
    if not is_plain(name):
        raise ResultsError(f"experiment {name!r} cannot name a folder", hint=RULE)
    return name
