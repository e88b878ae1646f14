"""Commands that take long say how far they are, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def told() -> Iterator[None]:
    """Say how far the analysis within is; of a command, ``@told()``."""
    from analysis.telling import telling

    with telling(Told()):
        yield
