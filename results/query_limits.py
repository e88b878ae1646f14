"""Limits of a query: its seconds, and the memory that it may take.

Both are DuckDB's own, which counts the memory of joins, sorts and groups, not that of one text or
list which a function makes, and which can be interrupted between functions, not within one.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import duckdb

from results.errors import ResultsError

SECONDS_VARIABLE = "BATCHSCALE_QUERY_SECONDS"
MEMORY_VARIABLE = "BATCHSCALE_QUERY_GB"
_SECONDS = 600.0
_GB = 8.0
"""Gigabytes, on a machine that has twice as many; else half of its memory."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a query may take."""

    seconds: float
    bytes: int

    @classmethod
    def read(cls) -> Limits:
        """The limits that the environment sets; the default ones where it does not.

        Raises:
            ResultsError: a value that is not a positive number.
        """
        memory = _positive(MEMORY_VARIABLE) or min(_GB, _machine_bytes() / 2e9)
        return cls(seconds=_positive(SECONDS_VARIABLE) or _SECONDS, bytes=int(memory * 1e9))

    def too_large(self) -> ResultsError:
        """The error of a query, or an answer, that needs too much memory."""
        return ResultsError(
            f"SQL: it needs more than {self.bytes / 1e9:g} GB of memory",
            hint=f"ask for less, or set {MEMORY_VARIABLE}",
        )


@contextmanager
def limited(session: duckdb.DuckDBPyConnection, limits: Limits) -> Iterator[None]:
    """Around what runs a query in ``session``.

    Raises:
        ResultsError: it takes too long, or too much memory.
    """
    ended = threading.Event()

    def interrupt() -> None:
        wait = limits.seconds
        while not ended.wait(wait):
            with suppress(duckdb.ConnectionException):  # it has been closed meanwhile
                session.interrupt()
            wait = 0.05  # again: a statement that begins forgets an earlier one

    threading.Thread(target=interrupt, name="query limit", daemon=True).start()
    try:
        yield
    except duckdb.InterruptException as error:
        raise ResultsError(
            f"SQL: no answer within {limits.seconds:g} s",
            hint=f"ask for less, or set {SECONDS_VARIABLE}",
        ) from error
    except (duckdb.OutOfMemoryException, MemoryError) as error:  # pyarrow's is a MemoryError
        raise limits.too_large() from error
    finally:
        ended.set()


def _machine_bytes() -> float:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return math.inf


def _positive(variable: str) -> float | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ResultsError(f"{variable} is {text!r}, not a positive number")
    return value
