"""The rows of a results dataset that count, for queries, targets and exports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Self

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from results.storage import rows
from results.storage.dataset import columns_of, reading, retrying
from results.storage.source import Source

_ATTEMPTS = 5


class Tables:
    """The tables of a results dataset, as they were when its trials were first read.

    ``root`` is what it was opened from, for display: the keys of a URI are masked. Of a trial that
    was trained again only the last row counts; measurements without a committed trial do not.
    Those of a trial that was trained again since are the later ones, which are complete.
    """

    def __init__(self, root: str, source: Source, whole: Self | None = None) -> None:
        self.root = root
        self.source = source
        self._whole = whole

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.root!r})"

    def with_trials(self, trials: pa.Table) -> Self:
        """The same dataset with these trial rows (columns of ``schema.TRIALS``) in their place."""
        part = type(self)(self.root, self.source, self._whole or self)
        part.trial_rows = trials
        return part

    @cached_property
    def committed(self) -> pa.Table:
        """Every committed trial row, superseded ones too."""
        if self._whole is not None:
            return self._whole.committed
        return self.source.table("trials").replace_schema_metadata(None)

    @cached_property
    def trial_rows(self) -> pa.Table:
        """The rows that count, with the columns of ``schema.TRIALS`` alone."""
        return rows.latest(self.committed, rows.KEYS["trials"])

    @property
    def experiments(self) -> list[str] | None:
        """The experiments of these trials; None where they may be all experiments."""
        if self._whole is None:
            return None
        return list(pc.unique(self.trial_rows["experiment"]).drop_null().to_pylist())

    def table(self, name: str) -> pa.Table:
        """A table other than measurements: the rows that count, with workload fields."""
        if name == "trials":
            return rows.with_fields(self.trial_rows)
        table = self.source.table(name).replace_schema_metadata(None)
        table = rows.latest(table, rows.KEYS[name])
        if name == "sources":
            return table
        if self._whole is not None:
            table = table.filter(pc.is_in(table["study"], pc.unique(self.trial_rows["study"])))
        return rows.with_fields(table)

    def read_measurements(self, columns: Iterable[str] | None = None) -> pd.DataFrame:
        """The measurements with these columns; no other column is read.

        Raises:
            ResultsError: no such column.
        """
        return rows.frame(self.measurement_rows(columns))

    def measurement_rows(self, columns: Iterable[str] | None = None) -> pa.Table:
        """As ``read_measurements``: a missing value is null there, and NaN a value."""
        wanted = columns_of("measurements", columns)

        def read() -> pa.Table:
            files, runs = self.measured()
            live = rows.Live(self.trial_rows["trial"], runs)
            with reading(f"{self.root}/measurements"):
                return rows.measurements(files, live, wanted)

        return retrying(read)

    def measured(self, *, coded: Sequence[str] = ()) -> tuple[ds.Dataset, pa.Array]:
        """The measurements, not read yet, and for each trial row the commit that wrote its own.

        It is the row's, unless the trial was trained again since the rows were read: a compaction
        may have dropped what is superseded, and the later commit holds all of the trial's.

        Args:
            coded: text columns that may come dictionary-encoded.

        Raises:
            ResultsError: a broken file.
            FileNotFoundError: a file was removed since it was listed (``dataset.retrying``).
        """
        for _ in range(_ATTEMPTS):
            later = self.source.later(self.trial_rows)
            experiments = self.experiments
            if experiments is not None:
                experiments = [*experiments, *(experiment for _, experiment in later.values())]
            files = self.source.measurements(experiments, coded=coded)
            if self.source.later(self.trial_rows) == later:
                break
        runs = self.trial_rows["run"].combine_chunks()
        if later:
            trials = self.trial_rows["trial"].to_pylist()
            pairs = zip(trials, runs.to_pylist(), strict=True)
            runs = pa.array([later.get(trial, (run,))[0] for trial, run in pairs], pa.string())
        return files, runs
