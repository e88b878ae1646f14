"""The progress of a long command, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from results.errors import lines

_SECONDS = 10.0


def say(text: str, *, file: TextIO | None = None) -> None:
    """Print what may quote a name or a path of anybody's: control characters are escaped."""
    print(lines(text), file=file, flush=True)


class ProgressLines:
    """Prints the lines that it is called with, at most one every ten seconds."""

    def __init__(self, text: Callable[[Any], str] = str) -> None:
        self._text = text
        self._printed = time.monotonic()

    def __call__(self, done: Any) -> None:
        if time.monotonic() - self._printed >= _SECONDS:
            self._printed = time.monotonic()
            say(self._text(done), file=sys.stderr)
