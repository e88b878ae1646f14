"""Reads what other drivers have done and claimed, beside the training."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_SECONDS = 2.0
"""Seconds between two readings."""


@contextmanager
def polling(poll: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    """Inside, call ``poll()`` every two seconds in a thread. What it raises is raised at the end,
    for which ``stop()`` asks then."""
    over = threading.Event()
    errors: list[Exception] = []

    def run() -> None:
        while not over.wait(POLL_SECONDS) and not errors:
            try:
                poll()
            except Exception as error:
                errors.append(error)
                stop()

    thread = threading.Thread(target=run, name="poll", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if errors:
        raise errors[0]
