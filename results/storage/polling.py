"""A table read again and again while others add to it: only new files are read."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from results.schema import SCHEMAS
from results.storage.dataset import checked, names, reading, replaces, retrying
from results.storage.location import Location


class Polled:
    """Some columns of a table. Files never change, so rows once read stay valid."""

    def __init__(
        self, location: Location, table: str, experiment: str | None, columns: Sequence[str]
    ) -> None:
        self._location = location
        self._table = table
        self._folder = table if experiment is None else f"{table}/{experiment}"
        self._schema = SCHEMAS[table].remove_metadata()
        self._columns = list(columns)
        self._read: dict[str, tuple[pa.Table, frozenset[str]]] = {}

    def rows(self) -> pa.Table:
        """All rows, superseded ones included, in the order of the files.

        Raises:
            ResultsError: a half-written or foreign file, which is named.
        """
        return retrying(self._rows)

    def _rows(self) -> pa.Table:
        files = names(self._location, self._folder)
        self._read = {name: self._read.get(name) or self._file(name) for name in files}
        replaced = {other for _, others in self._read.values() for other in others}
        parts = [rows for name, (rows, _) in self._read.items() if name not in replaced]
        empty = self._schema.empty_table().select(self._columns)
        return pa.concat_tables([empty, *parts]).combine_chunks()

    def _file(self, name: str) -> tuple[pa.Table, frozenset[str]]:
        fragment = checked(self._location, self._table, name)
        with reading(self._location.display(name)):
            rows = fragment.to_table(schema=self._schema, columns=self._columns, use_threads=False)
        return rows, replaces(name, fragment)
