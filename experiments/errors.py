"""The error of this package: one line that names the thing and the place, and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from results.errors import ClearError


class ExperimentError(ClearError):
    """Something the user can mend. The front door prints the message, then the hint."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known name, or lists all of them."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
