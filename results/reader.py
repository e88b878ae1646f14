"""The one reader: ``open(source)`` gives the four tables as pandas frames, and SQL over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from results import optimizers, rows
from results.dataset import columns_of, reading, retrying
from results.errors import ResultsError, escaped
from results.storage.location import PACKAGED, Location
from results.storage.masking import masked
from results.user_tables.source import Folder, Source

if TYPE_CHECKING:
    from results.targets.target import Target

_ATTEMPTS = 5


def open(source: str | Path | Location) -> Results:
    """Open a results folder or URI, packaged data, or a CSV or Parquet file of one's own.

    Packaged are ``published`` (everybody's curves) and ``own`` (those that were measured with
    these workloads); a folder of such a name is ``./own``.

    Raises:
        ResultsError: it is none of these.
    """
    if isinstance(source, Location):
        return Results(source.root, Folder(source))
    text = str(source)
    if text in PACKAGED:
        if not any((PACKAGED[text] / "trials").glob("*/*.parquet")):
            raise ResultsError(
                f"this installation holds no {text} results",
                hint="name a results folder, or a CSV with the columns batch_size and steps",
            )
        return Results(text, Folder(Location(PACKAGED[text])))
    if "://" not in text and text.lower().endswith((".csv", ".parquet")):
        from results.user_tables.curves import read

        return Results(escaped(masked(text)), read(Path(text)))
    location = Location(source)
    return Results(location.root, Folder(location))


class Results:
    """A results dataset, read as it was when its trials were first asked for.

    ``root`` is what it was opened from, to be shown: the keys of a URI are masked. Frames are read
    once, when first used. Of a trial that was trained again only the last row counts; measurements
    without a committed trial do not. Those of a trial that was trained again since are the later
    ones, which are all of its.
    """

    def __init__(self, root: str, source: Source, part: Results | None = None) -> None:
        self.root = root
        self.source = source
        self._part_of = part

    @property
    def location(self) -> Location | None:
        """Where its files are: what opens them again. None: it was read from one file."""
        return self.source.location if isinstance(self.source, Folder) else None

    def __repr__(self) -> str:
        return f"Results({self.root!r})"

    def with_trials(self, trials: pa.Table) -> Results:
        """The same dataset with these trial rows (columns of ``schema.TRIALS``) in their place."""
        part = Results(self.root, self.source, self._part_of or self)
        part.trial_rows = trials
        return part

    @cached_property
    def committed(self) -> pa.Table:
        """Every committed trial row, superseded ones too."""
        if self._part_of is not None:
            return self._part_of.committed
        return self.source.table("trials").replace_schema_metadata(None)

    @cached_property
    def trial_rows(self) -> pa.Table:
        """The rows that count, with the columns of ``schema.TRIALS`` alone."""
        return rows.latest(self.committed, rows.KEYS["trials"])

    @property
    def experiments(self) -> list[str] | None:
        """The experiments of these trials, None where they may be all that there are."""
        if self._part_of is None:
            return None
        named: list[str] = pc.unique(self.trial_rows["experiment"]).drop_null().to_pylist()
        return named

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row a trial: the columns of ``schema.TRIALS``, then one for each workload field."""
        return rows.frame(self.table("trials"))

    @cached_property
    def studies(self) -> pd.DataFrame:
        """One row a study: the columns of ``schema.STUDIES``, then the workload fields."""
        return rows.frame(self.table("studies"))

    @cached_property
    def measurements(self) -> pd.DataFrame:
        """One row an evaluation: the columns of ``schema.MEASUREMENTS``."""
        return self.read_measurements()

    @cached_property
    def sources(self) -> pd.DataFrame:
        """One row a source of data that was not measured here: ``schema.SOURCES``."""
        return rows.frame(self.table("sources"))

    def read_measurements(self, columns: Iterable[str] | None = None) -> pd.DataFrame:
        """The measurements with the wanted columns alone: what is not asked for is not read.

        Raises:
            ResultsError: no such column.
        """
        wanted = columns_of("measurements", columns)

        def read() -> pa.Table:
            files, runs = self.measured()
            live = rows.Live(self.trial_rows["trial"], runs)
            with reading(f"{self.root}/measurements"):
                return rows.measurements(files, live, wanted)

        return rows.frame(retrying(read))

    def measured(self, *, coded: Sequence[str] = ()) -> tuple[ds.Dataset, pa.Array]:
        """The measurements, not read yet, and the commit of each trial row whose own they are.

        It is the row's, unless the trial was trained again since the rows were read: a compaction
        may have dropped what is superseded, and the later commit holds all of the trial's.

        Args:
            coded: text columns that may come dictionary-encoded.

        Raises:
            ResultsError: a broken file.
            FileNotFoundError: a file went away since it was listed (``results.dataset.retrying``).
        """
        for _ in range(_ATTEMPTS):
            later = self.source.later(self.trial_rows)
            experiments = self.experiments
            if experiments is not None:
                experiments = [*experiments, *(place for _, place in later.values())]
            files = self.source.measurements(experiments, coded=coded)
            if self.source.later(self.trial_rows) == later:
                break
        runs = self.trial_rows["run"].combine_chunks()
        if later:
            trials = self.trial_rows["trial"].to_pylist()
            pairs = zip(trials, runs.to_pylist(), strict=True)
            runs = pa.array([later.get(trial, (run,))[0] for trial, run in pairs], pa.string())
        return files, runs

    def query(self, sql: str) -> pd.DataFrame:
        """The answer to one SELECT (DuckDB) over studies, trials, measurements and sources.

        Workload fields are columns of studies and trials. SQL reads these four and nothing else.

        Raises:
            ResultsError: an error in it, in one line, or anything that is not a SELECT.
        """
        from results.query import query

        return query(self, sql)

    def where(self, condition: str) -> Results:
        """The trials for which an SQL condition over their columns is true (``width = 64``).

        Studies without such a trial are left out.

        Raises:
            ResultsError: an error in it, in one line.
        """
        from results.query import select

        return self.with_trials(select(self, condition))

    def with_target(self, target: str | Target | Mapping[str, str | Target]) -> Results:
        """The same trials with their steps to another target, found again in the measurements.

        A mapping has a target for each experiment; trials of others are left out.

        Raises:
            ResultsError: trials were stopped before it, or no measurement has its metric.
        """
        from results.targets.retarget import retarget

        return self.with_trials(retarget(self, target))

    def at_goals(self) -> Results:
        """The same trials, those of experiments without a recorded target at the goal that their
        studies name.

        Raises:
            ResultsError: some of these have no measurement of its metric.
        """
        from results.targets.retarget import at_goals

        rows = at_goals(self)
        return self if rows is self.trial_rows else self.with_trials(rows)

    def table(self, name: str) -> pa.Table:
        """A table other than measurements, as Arrow: the rows that count, with workload fields."""
        if name == "trials":
            return rows.with_fields(optimizers.with_names(self.trial_rows))
        found = self.source.table(name).replace_schema_metadata(None)
        found = rows.latest(found, rows.KEYS[name])
        if name == "sources":
            return found
        if self._part_of is not None:
            found = found.filter(pc.is_in(found["study"], pc.unique(self.trial_rows["study"])))
        return rows.with_fields(optimizers.with_names(found))
