"""What is wrong in a results folder: files, its mark, and rows that do not agree with each other.

Every page of every file is read, since a footer may be whole where the data are not. Nothing is
changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from results.counts import agreeing, count
from results.errors import ResultsError
from results.run_state.claims import Claims
from results.run_state.mark import MARK, dataset_of
from results.schema import SCHEMAS
from results.storage.compact import ORPHAN_SECONDS
from results.storage.dataset import MOVE_AWAY, checked, reading, replaces
from results.storage.location import PACKAGED, Location
from results.storage.objects import File
from results.storage.rows import KEPT, KEYS, ORDER, superseded
from results.storage.whole_file import TEMPORARY

_FOLLOWS = ("study", "batch_size", "seed", "metaparameters")
"""Columns of a trial that are the same in each of its rows, since its id follows from them."""
_PLACE = ("study", "search_id", "search_seed", "enlargement", "index")
"""Where a trial stands in the table of a search: one trial has that place."""
_COMPACT = "batchscale compact"
_AGAIN = "give the sweep's command again"


@dataclass(frozen=True, kw_only=True)
class Defect:
    """Something that is wrong, in one line, and what to do."""

    what: str
    do: str


@dataclass
class _Read:
    """What the whole files of a dataset hold."""

    rows: dict[str, pd.DataFrame] = field(default_factory=dict)
    """Keys of studies, trials and sources, with the ``file`` of each row."""
    measured: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row for each file, trial and run of the measurements: how many ``rows`` and ``steps``, and
    how many rows are ``unbounded``: of a part of a split, without what is known of the whole."""
    ages: dict[str, float | None] = field(default_factory=dict)
    """Seconds since a file was written, where the location says it."""
    files: int = 0


def fsck(location: Location) -> tuple[list[Defect], int]:
    """What is wrong in a results folder, and how many files of rows it has.

    Raises:
        ResultsError: it is not a results folder.
    """
    location.require()
    read = _Read()
    return [*_files(location, read), *_mark(location), *_rows(location, read)], read.files


def _mark(location: Location) -> Iterator[Defect]:
    if location.path in map(str, PACKAGED.values()):
        return
    data = location.read(MARK)
    if data is None:
        yield Defect(
            what=f"{location.display(MARK)} is missing: a sweep that runs there stops",
            do=f"put it back; where no sweep runs, {_COMPACT} or the next sweep writes one",
        )
    elif dataset_of(data) is None:
        yield Defect(
            what=f"{location.display(MARK)} does not name a dataset",
            do="delete it: the next sweep writes another",
        )


def _files(location: Location, read: _Read) -> Iterator[Defect]:
    """Read every file."""
    now = Claims(location).now()
    for folder in (*SCHEMAS, "claims", "checkpoints"):
        try:
            files = location.files(folder, hidden=True)
        except ResultsError as error:  # a link
            yield Defect(what=str(error), do=error.hint or MOVE_AWAY)
            continue
        for file in files:
            base = file.name.rpartition("/")[2]
            read.ages[file.name] = now - file.modified if file.modified else None
            if base.endswith(TEMPORARY):
                if (read.ages[file.name] or 0) > ORPHAN_SECONDS:
                    yield Defect(
                        what=f"{location.display(file.name)} was left by a writer that died",
                        do=f"{_COMPACT} deletes it" if folder in SCHEMAS else "delete it",
                    )
            elif folder in SCHEMAS and (base.startswith(".") or not base.endswith(".parquet")):
                yield Defect(
                    what=f"{location.display(file.name)} is not a file of results", do=MOVE_AWAY
                )
        if folder in SCHEMAS:
            yield from _table(location, folder, files, read)


def _table(location: Location, table: str, files: Sequence[File], read: _Read) -> Iterator[Defect]:
    """Read the files of a table, those that a merged one replaces apart."""
    parts: dict[str, pd.DataFrame] = {}
    gone: set[str] = set()
    for file in files:
        if not file.name.endswith(".parquet") or file.name.rpartition("/")[2].startswith("."):
            continue
        read.files += 1
        try:
            fragment = checked(location, table, file.name)
            with reading(location.display(file.name)):
                rows = fragment.to_table(schema=SCHEMAS[table].remove_metadata())
        except ResultsError as error:
            yield Defect(what=str(error), do=error.hint or MOVE_AWAY)
            continue
        gone |= replaces(file.name, fragment)
        parts[file.name] = _keys(table, rows).assign(file=file.name)
    left = sorted(gone & parts.keys())
    if left:
        yield Defect(
            what=f"{location.display(table)}: {count(len(left), 'file')} "
            f"{agreeing(len(left), 'are')} replaced by merged ones, and other programs count "
            "these rows twice",
            do=f"{_COMPACT} deletes what has been replaced for ten minutes",
        )
    kept = [rows for name, rows in parts.items() if name not in gone]
    empty = _keys(table, SCHEMAS[table].empty_table())
    every = pd.concat(kept, ignore_index=True) if kept else empty
    if table == "measurements":
        read.measured = every.assign(file=every.get("file", ""))
    else:
        read.rows[table] = every.assign(file=every.get("file", ""))


def _keys(table: str, rows: pa.Table) -> pd.DataFrame:
    if table == "measurements":
        keys = ["experiment", "study", "trial", "run"]
        rows = rows.append_column("unbounded", _unbounded(rows))
        sums = [("step", "count"), ("step", "count_distinct"), ("unbounded", "sum")]
        totals = rows.group_by(keys).aggregate(sums)
        names = {"step_count": "rows", "step_count_distinct": "steps", "unbounded_sum": "unbounded"}
        return totals.to_pandas().rename(columns=names)
    wanted = [*KEPT[table], *ORDER]
    if table == "trials":
        wanted += ["experiment", "source", "role", "stop_reason", "steps_run", *_FOLLOWS, *_PLACE]
    return rows.select([n for n in dict.fromkeys(wanted) if n in rows.schema.names]).to_pandas()


def _unbounded(rows: pa.Table) -> pa.ChunkedArray:
    """Which evaluations of a part of a split lack its size or an interval, (n,)."""
    partial, read = (rows[name].is_valid() for name in ("interval_metric", "evaluated_examples"))
    ordered = pc.less_equal(rows["interval_low"], rows["interval_high"])
    bounded = pc.and_(read, pc.fill_null(ordered, False))
    return pc.and_(pc.or_(partial, read), pc.invert(pc.and_(partial, bounded)))


def _rows(location: Location, read: _Read) -> Iterator[Defect]:
    """What does not agree between rows of whole files."""
    trials, measured = read.rows["trials"], read.measured
    for table, keys in KEYS.items():
        rows = read.rows[table]
        dead = int(superseded(pa.Table.from_pandas(rows, preserve_index=False), KEPT[table]).sum())
        if dead:
            yield Defect(
                what=f"{location.display(table)}: {count(dead, 'row')} of {len(rows)} "
                f"{agreeing(dead, 'are')} superseded, and other programs have to take the latest "
                f"of each {keys[-1]}",
                do=f"{_COMPACT} drops them",
            )
        yield from _misplaced(location, rows)
    yield from _misplaced(location, measured)
    unplanned = trials[~trials["study"].isin(read.rows["studies"]["study"])]
    if len(unplanned):
        yield Defect(
            what=f"{count(unplanned['trial'].nunique(), 'trial')} of "
            f"{count(unplanned['study'].nunique(), 'study')} {_named(unplanned['study'])} "
            "without a row of the study",
            do=f"{_AGAIN}: it writes the rows of its studies",
        )
    yield from _ids(trials)
    yield from _measurements(location, trials, read)


def _ids(trials: pd.DataFrame) -> Iterator[Defect]:
    """Ids that cannot follow from their rows."""
    for column in _FOLLOWS:
        values = trials.groupby("trial")[column].nunique(dropna=False)
        if (several := values.index[values > 1]).size:
            yield Defect(
                what=f"{count(len(several), 'trial')} {_named(several)} with several values of "
                f"{column}, from which the id follows",
                do="a row was edited: move its file away, and " + _AGAIN,
            )
    in_tables = trials[trials["role"].isin(["search", "extension"]) & trials["search_id"].notna()]
    ids = in_tables.groupby(list(_PLACE), dropna=False)["trial"].nunique()
    if double := int((ids > 1).sum()):
        yield Defect(
            what=f"{count(double, 'row')} of search tables with several trials",
            do="a row was edited, or two folders of different code were merged: keep one of them",
        )


def _measurements(location: Location, trials: pd.DataFrame, read: _Read) -> Iterator[Defect]:
    measured = read.measured
    twice = int((measured["rows"] - measured["steps"]).sum())
    if twice:
        yield Defect(
            what=f"{location.display('measurements')}: {count(twice, 'row')} stand twice",
            do="move the file away that was copied",
        )
    if unbounded := int(measured["unbounded"].sum()):
        yield Defect(
            what=f"{location.display('measurements')}: {count(unbounded, 'row')} of a part of a "
            f"split {agreeing(unbounded, 'lack')} its size, or low and high ends for the whole",
            do="move their file away, and " + _AGAIN,
        )
    pairs = trials[["trial", "run", "study"]].drop_duplicates(["trial", "run"])
    joined = measured.merge(pairs, on=["trial", "run"], how="left", suffixes=("", "_of_trial"))
    other = joined[joined["study_of_trial"].notna() & joined["study_of_trial"].ne(joined["study"])]
    if len(other):
        yield Defect(
            what=f"measurements of {count(other['trial'].nunique(), 'trial')} "
            f"{_named(other['trial'])} name another study than the trial's row",
            do="a row was edited: move its file away, and " + _AGAIN,
        )
    at_work = {claim["info"].get("experiment") for claim in Claims(location).live()}
    orphans = joined[joined["study_of_trial"].isna()]
    old = [
        experiment not in at_work or (read.ages.get(file) or 0) > ORPHAN_SECONDS
        for experiment, file in zip(orphans["experiment"], orphans["file"], strict=True)
    ]
    orphans = orphans[np.array(old, bool)]
    if len(orphans):
        yield Defect(
            what=f"{count(int(orphans['rows'].sum()), 'measurement')} of "
            f"{count(orphans['trial'].nunique(), 'trial')} {_named(orphans['trial'])} without a "
            "row of that commit: a writer died, or a file of trials is missing",
            do=f"put the file back, or {_COMPACT} deletes them after ten minutes",
        )
    table = pa.Table.from_pandas(trials, preserve_index=False)
    live = trials[~superseded(table, KEYS["trials"])]
    ended = live["source"].isna() & live["stop_reason"].isin(["target", "budget", "dominated"])
    known = pd.MultiIndex.from_frame(measured[["trial", "run"]])
    bare = live[ended & ~pd.MultiIndex.from_frame(live[["trial", "run"]]).isin(known)]
    if len(bare):
        yield Defect(
            what=f"{count(len(bare), 'trial')} {_named(bare['trial'])} without measurements: a "
            "file of them is missing",
            do="put it back, or move the file of these trials away and " + _AGAIN,
        )


def _misplaced(location: Location, rows: pd.DataFrame) -> Iterator[Defect]:
    """Files whose rows belong to another experiment than their folder says."""
    if rows.empty:
        return
    folders = rows["file"].str.split("/").str[1]
    for name in sorted(set(rows["file"][rows["experiment"].ne(folders)])):
        yield Defect(
            what=f"{location.display(name)} has rows of another experiment than its folder",
            do="move it into the folder of its experiment",
        )


def _named(ids: Sequence[str] | pd.Series | pd.Index | Mapping[str, object]) -> str:
    """One of the ids, in brackets."""
    return f"({min(map(str, ids))})" if len(set(ids)) == 1 else f"({min(map(str, ids))}, …)"
