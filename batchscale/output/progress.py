"""The progress of a long command, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from results.errors import escaped, lines

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


class Stages:
    """Shows which part of a command begins: on a terminal in one line, else in a line each."""

    def __init__(self) -> None:
        from rich.console import Console

        console = Console(stderr=True, highlight=False)
        self._console = console
        self._status = console.status("") if console.is_terminal else None

    def __enter__(self) -> Stages:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def __call__(self, text: str) -> None:
        if self._status:
            from rich.text import Text

            self._status.update(Text(escaped(text)))
        else:
            self._console.print(f"{escaped(text)} …", markup=False, soft_wrap=True)
