"""A session of DuckDB in memory, whose seconds and memory are limited.

Both limits are DuckDB's own, which counts the memory of joins, sorts and groups, not that of one
text or list which a function makes, and which can be interrupted between functions, not within one.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb

from results.errors import ResultsError
from results.storage.dataset import MOVE_AWAY

SECONDS_VARIABLE = "BATCHSCALE_QUERY_SECONDS"
MEMORY_VARIABLE = "BATCHSCALE_QUERY_GB"
_SECONDS = 600.0
_GB = 8.0
"""Gigabytes, on a machine that has twice as many; else half of its memory."""
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",
}

_IN_SQL = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
_REMOVED = ("No such file", "Failed to open local file", "No files found")


@contextmanager
def session(root: str, *, own: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """A session that reads measurements of ``root``; ``own``: no user's SQL.

    Raises:
        ResultsError: what runs in it takes too long or too much memory, or a file is broken; or a
            limit that the environment sets is not a positive number.
        FileNotFoundError: a file was removed since it was listed.
    """
    seconds = _positive(SECONDS_VARIABLE) or _SECONDS
    config = {**_CONFIG, "memory_limit": f"{most_bytes()}B"}
    ended = threading.Event()
    with duckdb.connect(":memory:", config=config) as opened:

        def interrupt() -> None:
            wait = seconds
            while not ended.wait(wait):
                with suppress(duckdb.ConnectionException):  # it has been closed meanwhile
                    opened.interrupt()
                wait = 0.05  # again: a statement that begins forgets an earlier one

        threading.Thread(target=interrupt, name="query limit", daemon=True).start()
        try:
            yield opened
        except duckdb.InterruptException as error:
            raise ResultsError(
                f"SQL: no answer within {seconds:g} s",
                hint=f"ask for less, or set {SECONDS_VARIABLE}",
            ) from error
        except (duckdb.OutOfMemoryException, MemoryError) as error:  # pyarrow's is a MemoryError
            raise too_large() from error
        except duckdb.Error as error:
            text = str(error)
            if any(part in text for part in _REMOVED):
                raise FileNotFoundError(text) from error
            in_sql = isinstance(error, _IN_SQL) or not own
            if not in_sql or "get_next failed" in text:  # a broken file
                line = f"{root}/measurements is not all whole Parquet files"
                raise ResultsError(line, hint=MOVE_AWAY) from error
            raise
        finally:
            ended.set()


def most_bytes() -> int:
    """The memory that a query, or an answer, may take.

    Raises:
        ResultsError: the environment sets it to what is not a positive number.
    """
    return int(1e9 * (_positive(MEMORY_VARIABLE) or min(_GB, _machine_bytes() / 2e9)))


def too_large() -> ResultsError:
    """The error of a query, or an answer, that needs more than ``most_bytes``."""
    return ResultsError(
        f"SQL: it needs more than {most_bytes() / 1e9:g} GB of memory",
        hint=f"ask for less, or set {MEMORY_VARIABLE}",
    )


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
