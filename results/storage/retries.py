"""Storage that fails for a moment: a shared disk whose server restarts, a network that is away."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 30.0
"""Seconds for which an operation is tried again."""
_LONGEST_PAUSE = 2.0
_PASSING = frozenset(
    number
    for name in (
        *("EIO", "ESTALE", "ETIMEDOUT", "EAGAIN", "EBUSY", "EREMOTEIO", "ENOTCONN", "ENODEV"),
        *("EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ECONNRESET", "ECONNREFUSED"),
    )
    if (number := getattr(errno, name, None)) is not None
)
"""Errors that may pass by themselves. A full or read-only disk does not."""


def retried(call: Callable[[], T]) -> T:
    """The answer of ``call``, which may be called again: after an error of the storage that may
    pass, for half a minute.

    Raises:
        OSError: another error at once, and such a one in the end.
    """
    until, pause = time.monotonic() + PATIENCE_SECONDS, 0.1
    while True:
        try:
            return call()
        except OSError as error:
            if error.errno not in _PASSING or time.monotonic() + pause > until:
                raise
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
