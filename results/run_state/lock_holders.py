"""Who holds a lock for which this process waits: said every few seconds, while it waits."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from results.errors import escaped

SAY_SECONDS = 5.0
"""Seconds of waiting after which, and after each of which, the holder is named."""


class Waiting:
    """A wait for the lock of a name, from its construction."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = self._said = time.monotonic()

    def say(self, read: Callable[[], bytes]) -> None:
        """Name the holder, by the lock's content that ``read`` gives, where it is time to."""
        now = time.monotonic()
        if now - self._said < SAY_SECONDS:
            return
        self._said = now
        logging.getLogger("batchscale").warning(
            "waiting for the lock %s since %.0f s: %s holds it",
            self._name,
            now - self._began,
            _holder(read()),
        )


@contextmanager
def naming_holder(name: str, read: Callable[[], bytes]) -> Iterator[None]:
    """Inside, a thread names the holder: the caller waits in the system."""
    over, waiting = threading.Event(), Waiting(name)

    def say() -> None:
        while not over.wait(SAY_SECONDS):
            waiting.say(read)

    thread = threading.Thread(target=say, name="waiting for a lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _holder(data: bytes) -> str:
    try:
        content = json.loads(data)
        machine, pid = str(content["machine"]).partition("/")[0], int(content["pid"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return "another process"
    return escaped(f"process {pid} on {machine}"[:200])
