"""The evaluations of many trials, and what SQL (DuckDB) makes of them: memory holds an answer, not
the evaluations, whatever their number.

evaluations = Evaluations([results.open("results/runs")])
evaluations.select("SELECT row, min(value) AS least FROM evaluations GROUP BY row",
                   {"trial": ["a", "b"]}, "validation_error")

No statement over them may gather lists: DuckDB does not count their memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from results.schema import METRIC_COLUMNS, SCHEMAS, table
from results.storage.dataset import retrying
from results.storage.source import IDENTIFYING, Memory
from results.storage.tables import Tables

HIT = "CASE WHEN lower_is_better THEN high < goal ELSE low > goal END"
"""Whether an evaluation has passed the target for certain; null without a value."""
MAYBE = "CASE WHEN lower_is_better THEN low < goal ELSE high > goal END"
"""Whether it may have: the same, unless it ended after a part of its split."""

_METRICS = "CASE WHEN json_valid(files.metrics) THEN files.metrics END"
_FIRSTS = f"""
SELECT row, min(step) FILTER ({HIT}) AS hit, min(step) FILTER ({MAYBE}) AS maybe
FROM evaluations WHERE value IS NOT NULL GROUP BY row"""
_BRACKETS = f"""
SELECT row, hit, coalesce(max(step) FILTER (step < maybe), 0) AS miss,
    count(*) FILTER ({MAYBE} AND NOT {HIT} AND step < coalesce(hit, step + 1)) AS undecided
FROM evaluations JOIN firsts USING (row) WHERE value IS NOT NULL GROUP BY row, hit"""


class Evaluations:
    """The measurements of one or several datasets; each question reads them again."""

    def __init__(self, sources: Sequence[Tables]) -> None:
        self._sources = sources

    @classmethod
    def of_frame(cls, measurements: pd.DataFrame) -> Evaluations:
        """Those of a frame with some of the columns of measurements: trial, step, metrics."""
        columns = {
            field.name: pa.array(measurements[field.name], field.type, from_pandas=True)
            if field.name in measurements
            else pa.nulls(len(measurements), field.type)
            for field in SCHEMAS["measurements"]
        }
        columns["run"] = pa.array([""] * len(measurements), pa.string())
        trials = [{"trial": name, "run": ""} for name in measurements["trial"].dropna().unique()]
        tables = {"trials": table("trials", trials), "measurements": pa.table(columns)}
        return cls([Tables("measurements", Memory(tables))])

    def has(self, metric: str) -> bool:
        """Whether a metric has its own column; others are in JSON text and slow to read."""
        return metric in METRIC_COLUMNS

    def metrics(self) -> list[str]:
        """The names of the metrics that were measured.

        Raises:
            ResultsError: a broken file.
        """
        names: dict[str, None] = {}
        for source in self._sources:
            names |= dict.fromkeys(retrying(partial(_metrics, source)))
        return [*names]

    def select(
        self,
        sql: str,
        trials: Mapping[str, Any],
        metric: str | None = None,
        *,
        first: Mapping[str, str] | None = None,
        tables: Mapping[str, pa.Table] | None = None,
    ) -> pd.DataFrame:
        """The answer to a SELECT over ``evaluations``, those of ``trials``.

        ``evaluations`` has the columns of ``trials``; ``row``, the place there; ``step``; and of
        the metric ``value`` (null where there is none), ``low`` and ``high`` (between which it is
        on the whole split; both are the value unless the evaluation ended after a part of it),
        ``partial`` (whether it did) and ``standard_error``.

        Args:
            trials: columns, (n,) each, of which ``trial`` has the ids; one may occur several times.
            first: SELECTs that are answered before, in tables of these names.
            tables: further tables that the statements read.

        Raises:
            ResultsError: a broken file, or too much time or memory.
        """
        ids = pa.array(trials["trial"], pa.string(), from_pandas=True)
        wanted = pa.table({**trials, "trial": ids, "row": np.arange(len(ids))})
        given = {"wanted": wanted, **(tables or {})}
        return retrying(lambda: self._answer(sql, given, metric, first or {}))

    def _answer(
        self, sql: str, tables: Mapping[str, pa.Table], metric: str | None, first: Mapping[str, str]
    ) -> pd.DataFrame:
        from results.session import session

        with session(", ".join(source.root for source in self._sources), own=True) as duck:
            # Joins are built of their right sides, which are small: of files no size may be known.
            duck.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
            for name, given in tables.items():
                duck.register(name, given)
            ids = pc.unique(tables["wanted"]["trial"])
            for place, source in enumerate(self._sources):
                rows = source.trial_rows.select(IDENTIFYING)  # all columns would be copied
                rows = rows.filter(pc.is_in(rows["trial"], ids))
                files, runs = source.with_trials(rows).measured(coded=["trial", "run"])
                _register(duck, f"files_{place}", files)
                duck.register(f"runs_{place}", pa.table({"trial": rows["trial"], "run": runs}))
                duck.execute(
                    f"CREATE TEMP TABLE live_{place} AS "
                    f"SELECT wanted.*, run FROM wanted JOIN runs_{place} USING (trial)"
                )
            parts = " UNION ALL ".join(
                f"SELECT live.* EXCLUDE (run), files.step, {_value(metric)} AS value, "
                f"{_interval(metric)} FROM files_{place} AS files "
                f"JOIN live_{place} AS live USING (trial, run)"
                for place in range(len(self._sources))
            )
            duck.execute(f"CREATE TEMP VIEW evaluations AS {parts}")
            for name, before in first.items():
                duck.execute(f"CREATE TEMP TABLE {name} AS {before}")
            return duck.sql(sql).to_arrow_table().to_pandas()

    def brackets(self, trials: Mapping[str, Any], metric: str) -> pd.DataFrame:
        """When each of ``trials`` first was strictly better than its goal; a row for each.

        Columns: ``measured`` (whether any evaluation has a value), ``hit`` (steps to the target,
        NaN where it was not reached), ``miss`` (the last miss before it, 0 if there was none),
        ``undecided`` (the number of evaluations before it that ended after a part of their split,
        and may have passed the target as well). The hit is one that is certain, and the last miss
        comes before all that may be hits, so that the bracket holds the steps that full evaluations
        would have given. An evaluation without a value does not count.

        Args:
            trials: columns (n,): ``trial``, ``goal`` and ``lower_is_better``.

        Raises:
            ResultsError: as ``select``.
        """
        rows = self.select(_BRACKETS, trials, metric, first={"firsts": _FIRSTS})
        rows = rows.set_index("row").assign(measured=True).astype({"hit": float, "miss": float})
        rows["miss"] = rows["miss"].where(rows["hit"].notna())
        rows = rows.reindex(range(len(trials["trial"])))
        return rows.assign(
            measured=rows["measured"].eq(True), undecided=rows["undecided"].fillna(0).astype(int)
        )


def _register(duck: Any, name: str, files: ds.Dataset) -> None:
    """Make the measurements a view. Files on this machine are read by DuckDB, in half of Arrow's
    time, but where a character of their names is a wildcard to it."""
    paths = files.files if isinstance(files, ds.FileSystemDataset) else []
    # Without files, pyarrow 26 crashes when it is asked for their file system.
    local = bool(paths) and isinstance(files.filesystem, LocalFileSystem)
    if not local or any(set(path) & set("*?[") for path in paths):
        duck.register(name, files)
        return
    # Files of earlier versions lack columns.
    duck.register(f"every_{name}", SCHEMAS["measurements"].empty_table())
    duck.read_parquet(paths, union_by_name=True).create_view(f"local_{name}")
    duck.execute(
        f"CREATE TEMP VIEW {name} AS FROM every_{name} UNION ALL BY NAME FROM local_{name}"
    )


def _metrics(source: Tables) -> list[str]:
    from results.session import session

    files = source.source.measurements(source.experiments)
    with session(source.root, own=True) as duck:
        _register(duck, "files", files)
        counts = ", ".join(f"count(nullif({name}, 'nan')) AS {name}" for name in METRIC_COLUMNS)
        (counted,) = duck.sql(f"SELECT {counts} FROM files").to_arrow_table().to_pylist()
        keys = duck.sql(f"SELECT DISTINCT unnest(json_keys({_METRICS})) FROM files").fetchall()
    return [*(name for name, number in counted.items() if number), *sorted(key for (key,) in keys)]


def _value(metric: str | None) -> str:
    """The metric of a row, from its own column or out of the JSON text of ``metrics``."""
    if metric is None:
        return "NULL::DOUBLE"
    if metric in METRIC_COLUMNS:
        return f"nullif(files.{metric}, 'nan')"
    pointer = _text("/" + metric.replace("~", "~0").replace("/", "~1"))
    text = f"json_extract_string({_METRICS}, {pointer})"
    return f"nullif(try_cast({text} AS DOUBLE), 'nan')"


def _interval(metric: str | None) -> str:
    """What a row says of the metric on the whole split: nothing where it is about another one."""
    of_metric = f"files.interval_metric = {_text(metric or '')}"
    ends = (
        f"CASE WHEN files.interval_metric IS NULL THEN {_value(metric)} WHEN {of_metric} "
        f"THEN coalesce(nullif(files.interval_{end}, 'nan'), '{sign}inf') ELSE '{sign}inf' END "
        f"AS {end}"
        for end, sign in (("low", "-"), ("high", ""))
    )
    error = f"CASE WHEN {of_metric} THEN files.standard_error END AS standard_error"
    return ", ".join(["files.interval_metric IS NOT NULL AS partial", *ends, error])


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
