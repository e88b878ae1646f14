"""Commands that take long say how far they are, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

_SECONDS = 10.0


class Told:
    """Says every ten seconds what it is called with, in ``words`` of its own."""

    def __init__(self, words: Callable[[Any], str] = str) -> None:
        self._words = words
        self._said = time.monotonic()

    def __call__(self, done: Any) -> None:
        if time.monotonic() - self._said >= _SECONDS:
            self._said = time.monotonic()
            print(self._words(done), file=sys.stderr, flush=True)


class Stages:
    """Says what begins: on a terminal in one line that goes away, else a line each."""

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
            self._status.update(text)
        else:
            self._console.print(f"{text} …", markup=False, soft_wrap=True)
