"""The one reader: ``open(source)`` gives the four tables as pandas frames, and SQL over them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pandas as pd

from results.errors import ResultsError, escaped
from results.storage import rows
from results.storage.location import PACKAGED, Location
from results.storage.masking import masked
from results.storage.source import Folder
from results.storage.tables import Tables
from results.targets import retarget
from results.targets.target import Target
from results.user_tables.curves import read
from results.user_tables.log import is_log

if TYPE_CHECKING:
    from results.query import Views


def open(source: str | Path | Location) -> Results:
    """Open a results folder or URI, packaged data, or a log of the user's.

    Packaged are ``published`` (curves of others) and ``own`` (curves measured with the packaged
    workloads); a folder of such a name is ``./own``.

    Raises:
        ResultsError: it is none of these.
    """
    if isinstance(source, Location):
        return Results(source.root, Folder(source))
    if not isinstance(source, str | Path):
        why = f"a {type(source).__name__} is no source: that is a folder, an address or a file"
        raise ResultsError(why, hint="write a frame to a file first: frame.to_csv('curves.csv')")
    text = str(source)
    if text in PACKAGED:
        if not any((PACKAGED[text] / "trials").glob("*/*.parquet")):
            raise ResultsError(
                f"this installation holds no {text} results",
                hint="name a results folder, or a CSV with the columns batch_size and steps",
            )
        return Results(text, Folder(Location(PACKAGED[text])))
    is_table = text.lower().endswith((".csv", ".json", ".jsonl", ".parquet"))
    is_folder = text.endswith("/") and not Path(text).is_dir()
    if "://" not in text and not is_folder and (is_table or is_log(Path(text))):
        return Results(escaped(masked(text)), read(Path(text)))
    location = Location(source)
    return Results(location.root, Folder(location))


class Results(Tables):
    """A results dataset, read as it was when its trials were first asked for.

    Frames are read once, when first used.
    """

    @property
    def location(self) -> Location | None:
        """The location of its files, which opens them again; None if it was read from one file."""
        return self.source.location if isinstance(self.source, Folder) else None

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
        """One row an evaluation: the columns of ``schema.SCHEMAS["measurements"]``."""
        return self.read_measurements()

    @cached_property
    def sources(self) -> pd.DataFrame:
        """One row a source of data that was not measured here: ``schema.SCHEMAS["sources"]``."""
        return rows.frame(self.table("sources"))

    def query(self, sql: str, views: Views | None = None) -> pd.DataFrame:
        """The answer to one SELECT (DuckDB) over studies, trials, measurements and sources.

        Workload fields are columns of studies and trials. SQL reads these four, and ``views``,
        and nothing else.

        Raises:
            ResultsError: an error in it, in one line, or anything that is not a SELECT.
        """
        from results.query import query

        return query(self, sql, views)

    def where(self, condition: str) -> Self:
        """The trials for which an SQL condition over their columns is true (``width = 64``).

        Studies without such a trial are left out.

        Raises:
            ResultsError: an error in it, in one line.
        """
        from results.query import select

        return self.with_trials(select(self, condition))

    def with_target(self, target: str | Target | Mapping[str, str | Target]) -> Self:
        """The same trials with their steps to another target, computed from the measurements.

        A mapping has a target for each experiment; trials of others are left out.

        Raises:
            ResultsError: trials were stopped before it, or no measurement has its metric.
        """
        return self.with_trials(retarget.retarget(self, target))

    def at_goals(self) -> Self:
        """The same trials, those of experiments without a recorded target at the goal that their
        studies name.

        Raises:
            ResultsError: some of these have no measurement of its metric.
        """
        trials = retarget.at_goals(self)
        return self if trials is self.trial_rows else self.with_trials(trials)

    def at_targets(self) -> list[Self]:
        """``at_goals``, and the trials that experiments of several targets have at the others: see
        ``retarget.at_other_targets``."""
        goals = self.at_goals()
        return [goals, *(self.with_trials(rows) for rows in retarget.at_other_targets(goals))]
