"""The error of this package: one line that names the thing and the place, and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class WorkloadError(Exception):
    """Something the user can correct. The message is printed, then the hint."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def nearest(name: str, names: Iterable[str], known: Iterable[str] | None = None) -> str:
    """A hint: the name most like ``name``, or those that are ``known``, by default all of them."""
    names = list(names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    listed = names if known is None else list(known)
    return f"known: {', '.join(listed)}" if listed else "there are none"


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its kind where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
