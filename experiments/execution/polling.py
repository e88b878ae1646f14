"""Calls of a thread beside the training: other drivers are heard of, workers listened to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL_SECONDS = 2.0
"""Seconds between two readings of what other drivers have done and claimed."""


@contextmanager
def polling(
    poll: Callable[[], None],
    failed: Callable[[Exception], None],
    seconds: float = POLL_SECONDS,
) -> Iterator[None]:
    """Inside, call ``poll()`` every so many seconds in a thread, until it raises something: that is
    given to ``failed``, in the thread."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            try:
                poll()
            except Exception as error:  # it is raised where it does not end a thread unseen
                failed(error)
                return

    thread = threading.Thread(target=run, name="polling", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
