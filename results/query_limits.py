"""Limits of a query: its seconds, and the memory that it may take beyond what the process has.

DuckDB counts the memory of joins, sorts and groups, but not that of a text or list which a
function makes (``repeat('x', 4000000000)``), and it can be interrupted between functions, not
within one. So the address space of the process is limited too while a query runs (Linux), and a
query that does not stop is left to a thread that ends with the process.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import duckdb

from results.errors import ResultsError

SECONDS_VARIABLE = "BATCHSCALE_QUERY_SECONDS"
MEMORY_VARIABLE = "BATCHSCALE_QUERY_GB"
_SECONDS = 600.0
_GB = 8.0
"""Gigabytes, on a machine that has twice as many; else half of its memory."""
_GRACE = 5.0
"""Seconds that an interrupted query has to stop."""
_THREAD_BYTES = 256 * 2**20
"""Address space that the stack and the allocator of a thread reserve, most of it never used."""

THREAD = "batchscale-query"
"""The name of a query's thread. Where one is left that does not stop, ``batchscale`` ends without
waiting for it: the interpreter cannot end a thread that is in DuckDB."""

T = TypeVar("T")


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

    def too_long(self) -> ResultsError:
        """The error of a query that was interrupted."""
        return ResultsError(
            f"SQL: no answer within {self.seconds:g} s",
            hint=f"ask for less, or set {SECONDS_VARIABLE}",
        )

    def too_large(self) -> ResultsError:
        """The error of a query, or an answer, that needs too much memory."""
        return ResultsError(
            f"SQL: it needs more than {self.bytes / 1e9:g} GB of memory",
            hint=f"ask for less, or set {MEMORY_VARIABLE}",
        )


def limited(session: duckdb.DuckDBPyConnection, limits: Limits, read: Callable[[], T]) -> T:
    """Call ``read``, which runs a query in ``session`` and closes it, in another thread.

    Raises:
        ResultsError: it takes too long, or too much memory.
    """
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            with _address_space(2 * limits.bytes):
                answer = read()
            outcome.set_result(answer)
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, name=THREAD, daemon=True).start()
    try:
        _wait(outcome, limits.seconds)
    finally:  # after Ctrl-C too
        until = time.monotonic() + _GRACE
        while not outcome.done() and time.monotonic() < until:
            with suppress(duckdb.ConnectionException):  # ``read`` has closed it meanwhile
                session.interrupt()  # again: a statement that begins forgets an earlier one
            _wait(outcome, 0.05)
    if not outcome.done():
        raise limits.too_long()
    try:
        return outcome.result()
    except duckdb.InterruptException as error:
        raise limits.too_long() from error
    except (duckdb.OutOfMemoryException, MemoryError) as error:  # pyarrow's is a MemoryError
        raise limits.too_large() from error


def _wait(outcome: Future[T], seconds: float) -> None:
    ended = threading.Event()
    outcome.add_done_callback(lambda _: ended.set())
    ended.wait(seconds)


_lock = threading.Lock()
_running = 0
_before: tuple[int, int] | None = None


@contextmanager
def _address_space(growth: int) -> Iterator[None]:
    """Limit the address space to ``growth`` bytes more than now, and as before after the last of
    several queries. No limit where the system does not report its size."""
    global _running, _before
    with _lock:
        before = _limit(growth)  # lower than that of another query which runs, or none
        _before = _before if _running else before
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if not _running and _before is not None:
                import resource

                resource.setrlimit(resource.RLIMIT_AS, _before)
                _before = None


def _limit(growth: int) -> tuple[int, int] | None:
    try:
        import resource

        with open("/proc/self/statm") as stream:
            size = int(stream.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError):
        return None
    before = resource.getrlimit(resource.RLIMIT_AS)
    wanted = size + growth + _THREAD_BYTES * (os.cpu_count() or 1)
    if before[0] != resource.RLIM_INFINITY and before[0] <= wanted:
        return None
    resource.setrlimit(resource.RLIMIT_AS, (wanted, before[1]))
    return before


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
