"""Compaction: merge an experiment's small files, and drop the rows that later ones supersede.

After it, other programs count every trial once too. It is safe during reads, during commits here
and on other machines, and if it is interrupted: at every moment every live row is in a file that
readers use. The order of the steps guarantees that.

1. One process at a time compacts an experiment: it holds a claim, and checks it before and after
   every file that it writes. A process that was suspended and lost the claim deletes what it has
   just written.
2. An interrupted earlier compaction is completed: files that a merged one replaces are deleted. A
   merged file is not merged again before that: it alone says that they are replaced.
3. The measurements' files are listed before the trials of all experiments are read, so that those
   of a trial committed meanwhile are never taken for orphans. Which rows are superseded is decided
   here, once, for all later steps; a row that is superseded later stays until the next compaction.
4. Measurements come first. Every reader takes the measurements of live trials alone, by their
   commit, and so misses no dropped row. The row that supersedes them is dropped after them: after a
   crash in between, the next compaction finds them by it.
5. Then the superseded rows of trials, studies and sources.

A merged file is written whole under a new name, with the names of those that it replaces, and then
they are deleted: until then readers ignore them. Where no row is left they are just deleted. Files
of half a million rows are written again only where they hold superseded rows.

A file of measurements without any committed trial belongs to a commit under way, or to a writer
that died. It stays for ten minutes, and is then deleted if there is still no file of trials with
its name. At the end of a complete sweep it is deleted at once, if no claim of its experiment is
left (``idle``): other programs would count it beside the measurements of the next attempt. A commit
that took so long that its claim may have been free checks for it under the same lock
(``Store.commit_columns``) and writes it again.

Beside running sweeps other programs may have listed the files that a merged one replaces, and open
them later: with ``grace`` they stay for so long, and the next compaction deletes them. Until then
those programs count their rows twice, unless they take one row of a key; ours do not.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from results.run_state.claims import Claim, Claims
from results.schema import SCHEMAS
from results.storage.dataset import all_fragments, encode, fragments, reading, replaces, retrying
from results.storage.location import Location
from results.storage.names import is_file_name, is_plain
from results.storage.rows import KEPT, ORDER, Live, grouped, superseded
from results.storage.whole_file import TEMPORARY

ORPHAN_SECONDS = 600.0
"""Seconds after which measurements without trials belong to no commit under way."""
GRACE_SECONDS = 600.0
"""Seconds for which replaced files stay beside a running sweep."""
_LARGE = 500_000
"""Rows from which a file is not merged, unless some of them are superseded."""
_MOST = 1_000_000
"""Rows, about, after which a merged file is closed and the next one begun."""

Files = Mapping[str, ds.ParquetFileFragment]


def compact(
    location: Location, experiment: str | None = None, *, grace: float = 0.0, idle: bool = False
) -> None:
    """Compact one experiment and those in which its trials supersede rows, or all of them.

    An experiment that another process is compacting is left out.

    Args:
        grace: seconds for which replaced files stay.
        idle: nobody who writes without a claim writes into ``experiment``.

    Raises:
        ResultsError: a broken or foreign file or a link among them (nothing is changed), or a disk
            that cannot be written.
    """
    paths = [file.name.split("/") for table in SCHEMAS for file in location.files(table)]
    names = {path[1] for path in paths if len(path) == 3}
    left = sorted(names if experiment is None else names & {experiment})
    seen: set[str] = set()
    while left:
        name = left.pop(0)
        seen.add(name)
        others = _alone(location, name, grace, idle and name == experiment)
        left += sorted(others - seen - set(left))


def _alone(location: Location, experiment: str, grace: float, idle: bool) -> set[str]:
    """Compact an experiment, if nobody else does; the others that hold superseded trials."""
    pack = f"compact-{experiment}"
    claim = Claims(location).take(pack, []) if is_plain(pack) else None
    if claim is None:
        return set()
    try:
        return _compact(location, experiment, claim, grace, idle)
    except FileNotFoundError:  # another program moves files: the next compaction does the rest
        return set()
    finally:
        claim.release()


def _compact(
    location: Location, experiment: str, claim: Claim, grace: float, idle: bool
) -> set[str]:
    # A bad file is refused before any is changed.
    every = {table: all_fragments(location, table, experiment) for table in SCHEMAS}
    finished = [
        _finish(location, f"{table}/{experiment}", files, grace) for table, files in every.items()
    ]
    if not all(finished):
        return set()
    measured = fragments(location, "measurements", experiment)
    trials = retrying(lambda: _Rows.read(location, "trials"))
    if _measurements(location, experiment, measured, trials, claim, grace, idle):
        for table in KEPT:
            dead = (trials if table == "trials" else _Rows.read(location, table)).dead
            if not _rewrite(location, fragments(location, table, experiment), dead, claim, grace):
                break
    return {name.split("/")[1] for name in trials.dead}


@dataclass(frozen=True)
class _Rows:
    """The rows of a table, of all experiments, and which of them are superseded."""

    table: pa.Table
    """Their keys: columns of ``KEPT`` and of ``ORDER``."""
    dead: Mapping[str, NDArray[np.bool_]]
    """The superseded rows of each file that has any, (n,)."""
    live: NDArray[np.bool_]
    """Of ``table``, (n,)."""

    @classmethod
    def read(cls, location: Location, table: str) -> _Rows:
        files = fragments(location, table)
        schema = SCHEMAS[table].remove_metadata()
        columns = [*KEPT[table], *(name for name in ORDER if name in schema.names)]
        every = ds.FileSystemDataset(list(files.values()), schema, ds.ParquetFileFormat())
        with reading(location.display(table)):
            rows = every.to_table(columns=columns)
        mask = superseded(rows, KEPT[table])
        dead, start = {}, 0
        for name, file in files.items():
            part = mask[start : start + file.metadata.num_rows]
            start += len(part)
            if part.any():
                dead[name] = part
        return cls(rows, dead, ~mask)


def _measurements(
    location: Location,
    experiment: str,
    files: Files,
    trials: _Rows,
    claim: Claim,
    grace: float,
    idle: bool,
) -> bool:
    """Merge those of committed trials, without those of superseded ones; see ``_rewrite``."""
    rows = trials.table.filter(pa.array(trials.live))
    live = Live(rows["trial"], rows["run"].combine_chunks())
    committed = pc.unique(trials.table["run"])
    superseded_runs = pc.unique(trials.table["run"].filter(pa.array(~trials.live)))
    modified = {file.name: file.modified for file in location.files(f"measurements/{experiment}")}
    kept, dead = {}, {}
    for name, file in files.items():
        with reading(location.display(name)):
            runs = _runs(file)
            if not pc.any(pc.is_in(runs, committed)).as_py():
                _without_trials(location, name, modified.get(name), idle)
                continue
            kept[name] = file
            if pc.any(pc.is_in(runs, superseded_runs)).as_py():
                mask = ~live.mask(file.to_table(columns=["trial", "run"])).to_numpy()
                if mask.any():
                    dead[name] = mask
    return _rewrite(location, kept, dead, claim, grace)


def _runs(file: ds.ParquetFileFragment) -> pa.Array:
    """The commits whose rows a file holds; the footer names a single one."""
    place = file.physical_schema.get_field_index("run")
    groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
    statistics = [group.column(place).statistics for group in groups if place >= 0]
    if statistics and all(each is not None and each.has_min_max for each in statistics):
        ends = {end for each in statistics for end in (each.min, each.max)}
        if len(ends) == 1:
            return pa.array([*ends], pa.string())
    return pc.unique(file.to_table(columns=["run"])["run"])


def _without_trials(location: Location, name: str, modified: float | None, idle: bool) -> None:
    """Delete measurements without trials once no commit can be under way that writes them."""
    claims = Claims(location)
    # Not every object store reports when a file was written.
    young = not modified or claims.now() - modified <= ORPHAN_SECONDS
    if young and not idle:
        return
    with claims.locked():
        if young and any(
            each["info"].get("experiment") == name.split("/")[1] for each in claims.live()
        ):
            return
        if not location.exists(f"trials/{name.partition('/')[2]}"):
            location.delete(name)


def _rewrite(
    location: Location,
    files: Files,
    dead: Mapping[str, NDArray[np.bool_]],
    claim: Claim,
    grace: float,
) -> bool:
    """Write small files of one folder together, and those with dead rows, without these.

    ``dead`` are the rows to drop by file. Returns whether the claim is still held.
    """
    chosen = {
        name: file
        for name, file in files.items()
        # A merged file can name only files beside it.
        if len(path := name.split("/")) == 3
        and is_file_name(path[2])
        and (file.metadata.num_rows < _LARGE or name in dead)
    }
    for group in grouped(chosen.items(), lambda item: int(item[1].metadata.num_rows), _MOST):
        batch = dict(group)
        if len(batch) < 2 and not batch.keys() & dead.keys():
            continue
        table, experiment, _ = next(iter(batch)).split("/")
        schema = SCHEMAS[table]
        with reading(location.display(f"{table}/{experiment}")):
            rows = _read(batch, dead, schema)
        if not claim.renew({}):
            return False
        if len(rows) or grace:
            stem = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex[:16]}"
            merged = f"{table}/{experiment}/{stem}.parquet"
            replaces = [name.rsplit("/", 1)[1] for name in batch]
            location.write(merged, encode(rows, replaces))
            if not claim.held():
                location.delete(merged)
                return False
        for name in () if grace else batch:
            location.delete(name)
    return True


def _read(files: Files, dead: Mapping[str, NDArray[np.bool_]], schema: pa.Schema) -> pa.Table:
    """The rows of some files, without the dead ones."""
    plain = schema.remove_metadata()
    whole = [file for name, file in files.items() if name not in dead]
    others = [
        file.to_table(schema=plain).filter(pa.array(~dead[name]))
        for name, file in files.items()
        if name in dead
    ]
    rows = ds.FileSystemDataset(whole, plain, ds.ParquetFileFormat()).to_table()
    return pa.concat_tables([rows, *others]).replace_schema_metadata(schema.metadata)


def _finish(location: Location, folder: str, files: Files, grace: float) -> bool:
    """Delete files that an earlier compaction or an interrupted write left: replaced and old
    temporary files. Whether no replaced one is left, whose merged file is younger than ``grace``.
    """
    now, finished = Claims(location).now(), True
    modified = {file.name: file.modified for file in location.files(folder)} if grace else {}
    for merged, file in files.items():
        others = sorted(replaces(merged, file) & files.keys())
        if others and now - modified.get(merged, now) < grace:
            finished = False
            continue
        for name in others:
            location.delete(name)
    for file in location.files(folder, TEMPORARY, hidden=True):
        path = file.name.split("/")
        ours = len(path) == 3 and path[2].startswith(".") and ".parquet." in path[2]
        if ours and file.modified and now - file.modified > ORPHAN_SECONDS:
            location.delete(file.name)
    return finished
