"""The error of this package: one line that names the thing and the place, and a hint."""

from __future__ import annotations


class ResultsError(Exception):
    """Something the user can mend. The front door prints the message, then the hint."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
