"""The origin of rows: a results folder or URI, or tables in memory (a user's CSV)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from results.schema import SCHEMAS
from results.storage.dataset import Polled, dataset, names, reading, retrying
from results.storage.location import Location
from results.storage.rows import KEYS, latest
from results.storage.values import check

IDENTIFYING = ("trial", "run", "experiment", "revision", "steps_run", "time")


class Source(Protocol):
    """Gives the reader every row, superseded and orphaned ones included."""

    def table(self, name: str) -> pa.Table:
        """All rows of a table, of the full schema."""

    def measurements(
        self, experiments: Collection[str] | None = None, *, coded: Sequence[str] = ()
    ) -> ds.Dataset:
        """The measurements, not read yet; at least those of ``experiments``. Text columns named
        in ``coded`` may come dictionary-encoded."""

    def later(self, trials: pa.Table) -> dict[str, tuple[str, str]]:
        """Of rows of the trials table, as they were read, those that have been superseded since:
        trial to the run and the experiment of its latest row."""


class Folder:
    """A results folder or URI.

    Raises:
        ResultsError: it is not one.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        location.require()
        self._newer: Polled | None = None
        """Keys of the trials in files that are newer than the first reading of trials."""

    def table(self, name: str) -> pa.Table:
        if name == "trials" and self._newer is None:
            present = frozenset(names(self.location, name))
            self._newer = Polled(self.location, name, None, IDENTIFYING, but=present)

        def read() -> pa.Table:
            files = dataset(self.location, name)
            with reading(self.location.display(name)):
                rows = files.to_table()
            if name in ("studies", "trials"):
                check(rows, self.location.display(name))
            return rows

        return retrying(read)

    def measurements(
        self, experiments: Collection[str] | None = None, *, coded: Sequence[str] = ()
    ) -> ds.Dataset:
        # A folder whose name differs from its experiment: its files are among all.
        if experiments is not None and not all(
            names(self.location, f"measurements/{experiment}") for experiment in experiments
        ):
            experiments = None
        return dataset(self.location, "measurements", experiments, coded=coded)

    def later(self, trials: pa.Table) -> dict[str, tuple[str, str]]:
        if self._newer is None:
            return {}
        after, before = self._newer.rows(), trials.select(IDENTIFYING)
        after = after.filter(pc.is_in(after["trial"], before["trial"].combine_chunks()))
        if not len(after):
            return {}
        last = latest(pa.concat_tables([before.cast(after.schema), after]), KEYS["trials"])
        runs = dict(zip(before["trial"].to_pylist(), before["run"].to_pylist(), strict=True))
        rows = zip(*(last[name].to_pylist() for name in IDENTIFYING[:3]), strict=True)
        return {trial: (run, place) for trial, run, place in rows if run != runs[trial]}


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

    def later(self, trials: pa.Table) -> dict[str, tuple[str, str]]:  # noqa: ARG002
        return {}
