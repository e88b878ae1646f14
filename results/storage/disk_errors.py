"""Errors of storage: those that may pass are met by trying again, others become one line.

A shared disk whose server restarts, or a network that is away, fails for a moment; a full or
read-only disk does not.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from results.errors import ResultsError

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
"""Errors that may pass by themselves."""
ERRORS = (OSError, pa.ArrowException, ValueError)
"""Errors of pyarrow and the system; a path with a NUL in it is a ValueError."""
_FORBIDDEN = (errno.EPERM, errno.EACCES, errno.EROFS)


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


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn the error of a full or read-only disk into one line."""
    try:
        yield
    except ERRORS as error:
        raise unwritable(str(path), line_of(error), error) from error


def unwritable(path: str, reason: str, error: BaseException) -> ResultsError:
    """The error for a file that cannot be written."""
    number = error.errno if isinstance(error, OSError) else None
    remedy = "make it writable" if number in _FORBIDDEN else "free some space"
    other = "" if number is None else f"{remedy} or name another folder with --results, then "
    return ResultsError(
        f"cannot write {path}: {reason}",
        hint=f"what was committed before is safe; {other}give the same command again",
    )


def line_of(error: BaseException) -> str:
    """The message of an error, in one line."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error).splitlines()[0] if str(error) else type(error).__name__
