"""Who holds a lock for which this process waits: said every few seconds, while it waits."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable

from results.errors import escaped

SAY_SECONDS = 5.0
"""Seconds of waiting after which, and after each of which, the holder is named."""


class Waiting:
    """A wait for the lock of a name, from its construction.

    Args:
        longest: seconds of a pause, at most; the first one is a fiftieth.
    """

    def __init__(self, name: str, longest: float) -> None:
        self._name, self._longest, self._pause = name, longest, longest / 50
        self._began = self._said = time.monotonic()

    def pause(self, read: Callable[[], bytes]) -> None:
        """Wait before the next attempt. Where it is time to, name the holder, by the lock's content
        that ``read`` gives."""
        time.sleep(random.uniform(0.5, 1) * self._pause)  # those who wait must not come together
        self._pause = min(1.5 * self._pause, self._longest)
        now = time.monotonic()
        if now - self._said < SAY_SECONDS:
            return
        self._said = now
        logging.getLogger("batchscale").warning(
            "waiting for the lock %s since %.0f s: %s holds it",
            self._name,
            now - self._began,
            _holder(read),
        )


def _holder(read: Callable[[], bytes]) -> str:
    try:
        content = json.loads(read())
        machine, pid = str(content["machine"]).partition("/")[0], int(content["pid"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return "another process"
    return escaped(f"process {pid} on {machine}"[:200])
