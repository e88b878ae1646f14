"""Which rows count: the latest of a trial, and the measurements that belong to it.

A trial that was trained again (with a larger budget, a harder target, after a failure) has several
rows; the one of the greatest ``revision`` counts. A row's revision is above that of every row of
its table that its writer had read, as in a logical clock (Lamport 1978), so that no machine's clock
decides. Rows of equal revision were written by two who did not know of each other: the one that was
trained for more steps counts, then the later one. A row without a revision is older than all that
have one. ``run`` ties a measurement to the commit that its trial's row came with, so that the
measurements of superseded rows, and those whose trials never were committed, are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from results.schema import SCHEMAS

_GROUP_ROWS = 500_000

T = TypeVar("T")


KEYS: Mapping[str, tuple[str, ...]] = {
    "studies": ("experiment", "study"),
    "trials": ("trial",),
    "sources": ("experiment", "source"),
}
"""The key of each table: of several rows with the same key, the latest counts."""
KEPT: Mapping[str, tuple[str, ...]] = {
    **KEYS,
    "studies": (*KEYS["studies"], "search_id", "search_seed"),
}
"""The same for a compaction, which keeps a row for each search of a study."""


ORDER = ("revision", "steps_run", "time", "run")
"""What decides which row of a key is the latest, the most important first; null is the least."""


def by_age(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of any keys, the oldest first."""
    order = [name for name in ("revision", "time") if name in rows]
    return rows.sort_values(order, kind="stable", na_position="first")


def latest(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The row of each key that is the last by ``ORDER``, in file order."""
    kept = _latest(table, keys)
    return table if kept is None else table.take(pa.array(kept))


def superseded(table: pa.Table, keys: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows ``latest`` leaves out, (n,)."""
    mask = np.zeros(len(table), bool)
    kept = _latest(table, keys)
    if kept is not None:
        mask[:] = True
        mask[kept] = False
    return mask


def _latest(table: pa.Table, keys: Sequence[str]) -> NDArray[np.int64] | None:
    """The positions of the rows that count, ascending; ``None`` for all of them."""
    order = [name for name in ORDER if name in table.column_names]
    frame = table.select([*keys, *order]).to_pandas()
    if not frame.duplicated(list(keys)).any():
        return None
    ordered = frame.sort_values(order, kind="stable", na_position="first")
    kept = ordered.drop_duplicates(list(keys), keep="last")
    return np.sort(kept.index.to_numpy(np.int64))


class Live:
    """Selects the measurements of live trials.

    ``trials`` are their ids, each once, ``runs`` the commit of each.
    """

    def __init__(self, trials: pa.ChunkedArray, runs: pa.Array) -> None:
        self.trials, self.runs = trials.combine_chunks(), runs

    def keep(self, rows: pa.Table) -> pa.Table:
        """The rows of ``rows`` (with trial and run) that belong to a live trial."""
        return rows.filter(self.mask(rows))

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """Which rows do: those of a live trial's own commit."""
        runs = pc.take(self.runs, pc.index_in(rows["trial"], self.trials))
        return pc.fill_null(pc.equal(runs, rows["run"]), False)


def measurements(files: ds.Dataset, live: Live, columns: Sequence[str]) -> pa.Table:
    """The wanted columns of all live measurements, in the order of the files."""
    schema = pa.schema([SCHEMAS["measurements"].field(name) for name in columns])
    return pa.concat_tables([schema.empty_table(), *kept(files, live, columns)])


def kept(files: ds.Dataset, live: Live, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The same, some hundred thousand rows at a time: finding the live ones among all trials takes
    as long for ten rows as for many."""
    read = list(dict.fromkeys([*columns, "trial", "run"]))
    for batches in grouped(files.to_batches(columns=read), len, _GROUP_ROWS):
        yield live.keep(pa.Table.from_batches(batches)).select(list(columns))


def grouped(items: Iterable[T], size: Callable[[T], int], least: int) -> Iterator[list[T]]:
    """Items in groups, each of which but the last has at least ``least`` rows."""
    group: list[T] = []
    count = 0
    for item in items:
        group.append(item)
        count += size(item)
        if count >= least:
            yield group
            group, count = [], 0
    if group:
        yield group


def with_fields(table: pa.Table) -> pa.Table:
    """``table`` with a column for each workload field in ``fields``.

    A field that has the name of a column of the table stays in ``fields`` alone. The type is
    int64, float64, bool or text, whatever holds all its values; a list is JSON text.
    """
    encoded = table["fields"].combine_chunks().dictionary_encode()
    parsed = [json.loads(text) if text else {} for text in encoded.dictionary.to_pylist()]
    parsed = [fields if isinstance(fields, dict) else {} for fields in parsed]
    for name in dict.fromkeys(key for fields in parsed for key in fields):
        if name not in table.column_names:
            values = _typed([fields.get(name) for fields in parsed])
            table = table.append_column(name, values.take(encoded.indices))
    return table


def frame(table: pa.Table) -> pd.DataFrame:
    """As pandas. Seeds keep all 63 bits and flags stay boolean where some are missing."""
    exact = {
        name: "Int64" if name == "seed" else "boolean"
        for name in table.column_names
        if (name == "seed" or pa.types.is_boolean(table[name].type)) and table[name].null_count
    }
    converted = table.drop_columns(list(exact)).to_pandas()
    for name, kind in exact.items():
        converted[name] = pd.array(table[name].to_pylist(), dtype=kind)
    return converted[table.column_names]


def _typed(values: list[Any]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int} and all(value is None or abs(value) < 2**63 for value in values):
        return pa.array(values, pa.int64())
    if kinds <= {int, float} and kinds:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    texts = [
        value if value is None or isinstance(value, str) else json.dumps(value) for value in values
    ]
    return pa.array(texts, pa.string())
