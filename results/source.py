"""Where rows come from: a results folder or URI, or tables in memory (a CSV of one's own)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.dataset as ds

from results.dataset import dataset, names, reading, retrying, where
from results.location import Location
from results.schema import SCHEMAS
from results.values import check


class Source(Protocol):
    """What the reader reads. Rows are as they lie: superseded and orphaned ones included."""

    def table(self, name: str) -> pa.Table:
        """All rows of a table, of the full schema."""

    def measurements(
        self, experiments: Collection[str] | None = None, *, coded: Sequence[str] = ()
    ) -> ds.Dataset:
        """The measurements, not read yet; at least those of ``experiments``. Text columns named
        in ``coded`` may come dictionary-encoded."""


class Folder:
    """A results folder or URI.

    Raises:
        ResultsError: it is not one.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        location.require()

    def table(self, name: str) -> pa.Table:
        def read() -> pa.Table:
            files = dataset(self.location, name)
            with reading(where(self.location, name)):
                found = files.to_table()
            if name in ("studies", "trials"):
                check(found, where(self.location, name))
            return found

        return retrying(read)

    def measurements(
        self, experiments: Collection[str] | None = None, *, coded: Sequence[str] = ()
    ) -> ds.Dataset:
        # A folder that was given another name than its experiment: its files are among all.
        if experiments is not None and not all(
            names(self.location, f"measurements/{experiment}") for experiment in experiments
        ):
            experiments = None
        return dataset(self.location, "measurements", experiments, coded=coded)


class Memory:
    """Tables in memory; those not given are empty."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = {name: tables.get(name, SCHEMAS[name].empty_table()) for name in SCHEMAS}

    def table(self, name: str) -> pa.Table:
        return self._tables[name].replace_schema_metadata(None)

    def measurements(
        self,
        experiments: Collection[str] | None = None,  # noqa: ARG002
        *,
        coded: Sequence[str] = (),  # noqa: ARG002
    ) -> ds.Dataset:
        return ds.dataset(self.table("measurements"))
