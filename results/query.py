"""SQL over a results dataset: one SELECT, by DuckDB, which sees the four tables, the views that a
caller adds to them, and nothing else.

The session is in memory, with external access off and its configuration locked: SQL cannot write,
attach, load, install, copy or read a file, nor see a Python variable. Its time and its memory are
limited (``session``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NoReturn

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from results.errors import ResultsError, is_utf8, nearest
from results.schema import SCHEMAS
from results.session import most_bytes, session, too_large
from results.storage import rows
from results.storage.dataset import retrying
from results.storage.tables import Tables

_LIVE = """CREATE TEMP VIEW measurements AS
SELECT * FROM measurement_files SEMI JOIN live_trials USING (trial, run)"""
_COLUMN = re.compile(
    r'column (?:name )?"?([^"\s]+)"? not found|does not have a column named "(.+?)"'
)
_TABLE = re.compile(r"Table with name (\S+) does not exist")
_MEANT = re.compile(r'Did you mean "(.+?)"')
_READ_ONLY = "one SELECT over studies, trials, measurements and sources; -o FILE writes its answer"


Views = Mapping[str, Callable[[Any], pa.Table]]
"""Further tables by their names, which are computed where a statement reads them."""


class _MissingTableError(Exception):
    """A statement reads a table of this name."""


def query(results: Tables, sql: str, views: Views | None = None) -> pd.DataFrame:
    """The answer to one SELECT over studies, trials, measurements, sources, and the ``views``.

    Raises:
        ResultsError: an error in it, or anything that is not one SELECT.
    """
    views, made = views or {}, dict[str, pa.Table]()
    while True:
        try:
            answer = retrying(lambda: _run(results, sql, SCHEMAS, made, views))
            return rows.frame(answer.rename_columns(_distinct(answer.column_names)))
        except _MissingTableError as missing:
            name = str(missing)
            made[name] = retrying(partial(views[name], results))


def select(results: Tables, condition: str) -> pa.Table:
    """The trial rows for which an SQL condition is true, in their order.

    Raises:
        ResultsError: an error in the condition.
    """
    named = [name for name in SCHEMAS if name == "trials" or name in condition.lower()]
    # The line break ends a comment at the end of the condition before the bracket.
    sql = f"SELECT trial FROM trials WHERE ({condition}\n)"
    kept = retrying(lambda: _run(results, sql, named))
    trials = results.trial_rows
    return trials.filter(pc.is_in(trials["trial"], kept["trial"].combine_chunks()))


def _distinct(names: Sequence[str]) -> list[str]:
    """The names of an answer's columns, a second ``a`` as ``a_1``: a join may have two."""
    distinct: dict[str, None] = {}
    for name in names:
        candidates = (name, *(f"{name}_{number}" for number in range(1, len(names) + 1)))
        distinct[next(each for each in candidates if each not in distinct)] = None
    return list(distinct)


def _run(
    results: Tables,
    sql: str,
    names: Collection[str],
    made: Mapping[str, pa.Table] = MappingProxyType({}),
    views: Iterable[str] = (),
) -> pa.Table:
    """Run the statement in a session of its own.

    Raises:
        _MissingTableError: it reads one of ``views``, which is not ``made`` yet.
    """
    if not is_utf8(sql):
        raise ResultsError("SQL: it is not UTF-8 text")
    columns: set[str] = set()
    try:
        with session(results.root) as opened:
            tables = {name: results.table(name) for name in names if name != "measurements"}
            for name, table in {**made, **tables}.items():
                opened.register(name, ds.dataset(table))
                columns |= set(table.column_names)
            if "measurements" in names:
                files, runs = results.measured()
                live = {"trial": results.trial_rows["trial"], "run": runs}
                opened.register("measurement_files", files)
                opened.register("live_trials", ds.dataset(pa.table(live)))
                opened.execute(_LIVE)
                columns |= set(SCHEMAS["measurements"].names)
            opened.execute("SET TimeZone = 'UTC'")
            opened.execute("SET enable_external_access = false")
            opened.execute("SET lock_configuration = true")
            kinds = ", ".join(map(_kind, opened.extract_statements(sql))) or "nothing"
            if kinds != "SELECT":
                raise ResultsError(f"SQL: {kinds} is not one SELECT", hint=_READ_ONLY)
            return _rows(opened.sql(sql))
    except duckdb.Error as error:
        missing = _TABLE.search(str(error))
        if missing is not None and missing[1].lower() in {*views} - {*made}:
            raise _MissingTableError(missing[1].lower()) from None
        _explain(error, columns, [*SCHEMAS, *views, *made])


def _kind(statement: duckdb.Statement) -> str:
    try:
        return statement.type.name
    except ValueError:  # the interface to Python does not have all
        return "that statement"


def _rows(answer: duckdb.DuckDBPyRelation) -> pa.Table:
    """All rows of an answer, taken up part by part: DuckDB does not count their memory."""
    most = most_bytes()
    reader = pa.RecordBatchReader.from_stream(answer)
    batches, size = [], 0
    for batch in reader:
        size += batch.nbytes
        if size > most:
            raise too_large()
        batches.append(batch)
    return pa.Table.from_batches(batches, reader.schema)


def _explain(error: duckdb.Error, columns: Iterable[str], tables: Sequence[str]) -> NoReturn:
    text = str(error)
    line = re.sub(r"^[A-Z]\w+(?: \w+)* Error: ", "", text.splitlines()[0]).rstrip("!")
    hint = None
    if match := _COLUMN.search(text):
        name = match[1] or match[2]
        hint = nearest(name, columns)
        if name.lower() in columns:  # of another table
            hint = f"another table has {name}: FROM measurements JOIN trials USING (trial)"
    elif match := _TABLE.search(text):
        hint = nearest(match[1], tables, f"did you mean one of {', '.join(tables)}?")
    elif isinstance(error, duckdb.PermissionException):
        line = "SQL reads the results alone, no file or address"
        raise ResultsError(line, hint=_READ_ONLY) from error
    elif match := _MEANT.search(text):
        hint = f"did you mean {match[1]}?"
    raise ResultsError(f"SQL: {line}", hint=hint) from error
