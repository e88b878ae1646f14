"""The one writer. A commit writes measurements first, then trials: the trials file is the commit.

store = Store("results/runs")
store.add_studies([{"experiment": "digits", "study": "…", "batch_size": 8, …}])
store.commit("digits", measurements=[…], trials=[…])
"""

from __future__ import annotations

import shlex
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from results.errors import DatasetLostError, ResultsError
from results.run_state.claims import SILENT_SECONDS, Claims
from results.run_state.mark import spool
from results.schema import SCHEMAS, table
from results.storage.compact import compact
from results.storage.dataset import Polled, columns_of, dataset, encode, retrying
from results.storage.location import Location
from results.storage.names import experiment_name
from results.storage.rows import KEYS, ORDER, frame, latest

Row = Mapping[str, Any]


class Store:
    """Writes rows into a results folder (or URI), which it creates.

    Raises:
        ResultsError: the folder holds something else, or cannot be written.
        DatasetLostError: the location was opened before, and its dataset is not there any more.
    """

    def __init__(self, root: str | Path | Location) -> None:
        self.location = Location.of(root)
        self.location.open_dataset()
        self._polled: dict[tuple[str, str | None, tuple[str, ...]], Polled] = {}
        self._newest = 0
        """The greatest revision of a trial that was read."""

    @property
    def root(self) -> str:
        """The address that it was opened from, for display: the keys of a URI are masked."""
        return self.location.root

    def add_studies(self, rows: Sequence[Row]) -> None:
        """Write studies; one written before with the same experiment and id is superseded."""
        revision = self.next_revision("studies")
        self._add("studies", [{**row, "revision": revision} for row in rows])

    def add_sources(self, rows: Sequence[Row]) -> None:
        """Write the sources of data that was not measured here (``experiment`` names the rows)."""
        revision = self.next_revision("sources")
        self._add("sources", [{**row, "revision": revision} for row in rows])

    def commit(
        self, experiment: str, *, measurements: Sequence[Row], trials: Sequence[Row]
    ) -> str | None:
        """Write finished trials with all their measurements; returns the ``run`` given to both.

        A trial committed before is superseded, with its measurements. ``experiment``, ``run``,
        ``revision``, ``time`` and a measurement's ``study`` are filled in. A kill at any moment
        leaves either none of the trials or all of them.

        Raises:
            ResultsError: a value its column cannot hold, or a disk that cannot be written.
            ValueError: a trial given twice, or a measurement of a trial that is not given.
        """
        studies = {row["trial"]: row.get("study") for row in trials}
        if len(studies) < len(trials):
            raise ValueError("a trial is given twice in one commit")
        foreign = {row["trial"] for row in measurements} - studies.keys()
        if foreign:
            raise ValueError(f"measurements of trials that are not committed: {sorted(foreign)}")
        if not trials:
            return None
        points = table(
            "measurements", [{"study": studies[row["trial"]], **row} for row in measurements]
        )
        return self.commit_columns(experiment, measurements=points, trials=trials)

    def commit_columns(
        self, experiment: str, *, measurements: pa.Table, trials: Sequence[Row]
    ) -> str | None:
        """``commit`` for any number of measurements that are columns already.

        ``measurements`` has columns of the schema, ``trial`` and ``study`` among them, each as the
        schema types it or dictionary-encoded; those it lacks are null. Each is of one of
        ``trials``.

        Raises:
            ResultsError: as ``commit``.
            DatasetLostError: the dataset is not there any more. The rows are in a folder that the
                error names.
        """
        if not trials:
            return None
        try:
            revision = self.next_revision("trials")
            return self._commit(self.location, experiment, measurements, trials, revision)
        except DatasetLostError as lost:
            place = Location(spool(str(self.location.dataset)))
            self._commit(place, experiment, measurements, trials, self._newest + 1)
            copy = f"cp -r {shlex.quote(place.path)}/. {shlex.quote(self.root)}/"
            raise DatasetLostError(
                f"{lost}; the last trials that had ended are in {place.path}",
                hint=f"put it back (move it, mount it), then: {copy}; and give the same command "
                "again: what was in training continues from its snapshots",
            ) from None

    def _commit(
        self,
        location: Location,
        experiment: str,
        measurements: pa.Table,
        trials: Sequence[Row],
        revision: int,
    ) -> str:
        now, began = datetime.now(UTC), time.time()
        run = uuid.uuid4().hex[:16]
        file = f"{experiment_name(experiment)}/{now:%Y%m%dT%H%M%S%f}-{run}.parquet"
        stamp = {"experiment": experiment, "run": run}
        points = _stamped(measurements, stamp)
        newest = {**stamp, "revision": revision}
        ends = table(
            "trials", [{**row, **newest, "time": row.get("time") or now} for row in trials]
        )
        if len(points):
            data = encode(points)
            location.write(f"measurements/{file}", data)
        try:
            location.write(f"trials/{file}", encode(ends))
        except ResultsError:
            # Other programs would count these evaluations beside those of the next attempt. Of a
            # store that did not answer the trials may have been written.
            with suppress(ResultsError):
                if location.local and not location.exists(f"trials/{file}"):
                    location.delete(f"measurements/{file}")
            raise
        if len(points) and location is self.location:
            # A compaction that ran while this process slept may have deleted the measurements. It
            # does so under the lock, and not once it sees the trials.
            slept = time.time() - began > SILENT_SECONDS / 2
            with Claims(self.location).locked() if slept else nullcontext():
                if not self.location.exists(f"measurements/{file}") and not self._measured(file):
                    self.location.write(f"measurements/{file}", data)
        return run

    def _measured(self, file: str) -> bool:
        """Whether the measurements of a commit are in another file, merged already."""
        experiment, _, name = file.partition("/")
        run = ds.field("run") == name.removesuffix(".parquet").rpartition("-")[2]

        def count() -> int:
            return dataset(self.location, "measurements", [experiment]).count_rows(filter=run)

        return retrying(count) > 0

    def amend(self, rows: Sequence[Row]) -> None:
        """Write whole trial rows again with changes; their measurements are kept.

        Each row is as it was read, ``experiment`` and ``run`` included, and supersedes that one.

        Raises:
            ResultsError: a value its column cannot hold, or a disk that cannot be written.
        """
        # Not above all rows: a trial that is trained again meanwhile is to supersede this one.
        again = [{**row, "revision": (row.get("revision") or 0) + 1, "time": None} for row in rows]
        self._add("trials", again)

    def trials(
        self, experiment: str | None = None, columns: Iterable[str] | None = None
    ) -> pd.DataFrame:
        """The latest row of each trial (of one experiment), with the wanted columns.

        A second call reads only the files that are new since. Name the columns: the files of a
        running sweep are small, and all columns of a file take 2 ms.
        """
        wanted = columns_of("trials", columns)
        rows = self._read("trials", experiment, wanted)
        return frame(latest(rows, KEYS["trials"]).select(wanted))

    def next_revision(self, name: str) -> int:
        """The revision of a row that is written now: above that of all rows of the table."""
        return 1 + (pc.max(self._read(name, None)["revision"]).as_py() or 0)

    def _read(self, name: str, experiment: str | None, columns: Iterable[str] = ()) -> pa.Table:
        """All rows, with those columns and the ones that say which row is the latest."""
        order = [column for column in ORDER if column in SCHEMAS[name].names]
        key = (name, experiment, tuple(sorted({*columns, *KEYS[name], *order})))
        if self.location.local:  # a folder that is gone would have no rows
            self.location.check()
        rows = self._polled.setdefault(key, Polled(self.location, *key)).rows()
        if name == "trials":
            self._newest = pc.max(rows["revision"]).as_py() or 0
        return rows

    def studies(self, experiment: str | None = None) -> pd.DataFrame:
        """The latest row of each study (of one experiment)."""
        rows = Polled(self.location, "studies", experiment, columns_of("studies", None)).rows()
        return frame(latest(rows, KEYS["studies"]))

    def compact(
        self, experiment: str | None = None, *, grace: float = 0.0, idle: bool = False
    ) -> None:
        """Merge small files and drop superseded rows; see ``results.storage.compact``."""
        compact(self.location, experiment, grace=grace, idle=idle)

    def _add(self, name: str, rows: Sequence[Row]) -> None:
        now = datetime.now(UTC)
        by_experiment: dict[str, list[Row]] = {}
        for row in rows:
            by_experiment.setdefault(row["experiment"], []).append(
                {**row, "time": row.get("time") or now}
            )
        for experiment, group in by_experiment.items():
            file = f"{now:%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex[:16]}.parquet"
            data = encode(table(name, group))
            self.location.write(f"{name}/{experiment_name(experiment)}/{file}", data)


def _stamped(measurements: pa.Table, stamp: Mapping[str, str]) -> pa.Table:
    """All columns of the schema, those of ``stamp`` of one value; text may be dictionaries."""
    schema, count = SCHEMAS["measurements"], len(measurements)
    columns = []
    for field in schema:
        if field.name in stamp:
            code = pa.array(np.zeros(count, np.int32))
            column: Any = pa.DictionaryArray.from_arrays(code, pa.array([stamp[field.name]]))
        elif field.name in measurements.column_names:
            column = measurements[field.name]
        else:
            column = pa.nulls(count, field.type)
        columns.append(column)
    fields = [pa.field(f.name, column.type) for f, column in zip(schema, columns, strict=True)]
    return pa.table(columns, schema=pa.schema(fields, metadata=schema.metadata))
