"""Upkeep of a results folder: what is wrong in it, and fewer files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from results.fsck import Defect
from results.fsck import fsck as defects_of
from results.storage.compact import GRACE_SECONDS
from results.storage.dataset import fragments, retrying
from results.storage.location import PACKAGED, Location, default_results
from results.store import Store

TABLES = ("studies", "trials", "measurements", "sources")


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What ``fsck`` found."""

    defects: Sequence[Defect]
    """``what`` is wrong, in one line, and what to ``do``."""
    unchecked: Sequence[str]
    """What could not be checked here, and why."""
    files: int
    """Files of rows that were read."""


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """How many files of rows count ``before`` and ``after`` a compaction."""

    before: int
    after: int


def fsck(source: str | Path | Location | None = None) -> Checked:
    """Check a results folder: every file, the mark, counts, and whether ids follow from their rows.

    Nothing is changed. Of experiments that name Python files ids are not planned again.

    Raises:
        ResultsError: it is not a results folder.
    """
    where = source or default_results()
    location = Location.of(PACKAGED.get(str(where), where))
    defects, files = defects_of(location)
    if any("whole Parquet" in each.what for each in defects):
        return Checked(defects=defects, unchecked=["ids: not all files can be read"], files=files)
    try:
        from experiments.records.ids import wrong_ids
    except ImportError as error:  # the analysis group alone
        return Checked(defects=defects, unchecked=[f"ids: {error}"], files=files)
    from results.reader import open

    wrong, unchecked = wrong_ids(open(location))
    return Checked(defects=[*defects, *wrong], unchecked=unchecked, files=files)


def compact(results: str | Path | Location | None = None) -> Compacted:
    """Merge a results folder's small files and drop superseded rows, beside running sweeps too.

    Files that are replaced stay for ten minutes, for programs that have listed them; the next
    compaction deletes them.

    Raises:
        ResultsError: it is not a results folder, holds a broken file, or cannot be written.
    """
    location = Location.of(results or default_results())
    location.require()
    store = Store(location)

    def files() -> int:
        return retrying(lambda: sum(len(fragments(location, table)) for table in TABLES))

    before = files()
    store.compact(grace=GRACE_SECONDS)
    return Compacted(before=before, after=files())
