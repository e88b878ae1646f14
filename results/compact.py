"""Compaction: merge the small files of an experiment and swap them for a large one.

The merged file names the files that it stands for, so that a reader counts no row twice while both
lie there, and none is ever missing: write the merged file, then delete what it replaces. A crash
in between leaves files that readers pass over and the next compaction deletes.

Measurements that no committed trial owns (their pack died between its two writes) are deleted
once they have lain for ten minutes; a commit that is under way is never that old.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from results.claims import Claim, Claims
from results.dataset import all_fragments, reading, replaced, where
from results.location import TEMPORARY, Location
from results.schema import SCHEMAS
from results.store import encode

ORPHAN_SECONDS = 600.0
_LARGE = 500_000
"""Rows from which a file is left as it is."""
_MOST = 1_000_000
"""Rows, about, after which a merged file is closed and the next one begun."""

Files = Mapping[str, ds.ParquetFileFragment]


def compact(location: Location, experiment: str | None = None) -> None:
    """Compact one experiment, or all. One that another process is compacting is left to it.

    Safe beside readers and beside commits, here or on other machines.

    Raises:
        ResultsError: a broken or foreign file among them (nothing is changed), or a disk that
            refuses.
    """
    claims = Claims(location)
    paths = [file.name.split("/") for table in SCHEMAS for file in location.files(table)]
    names = {path[1] for path in paths if len(path) == 3}
    for name in sorted(names if experiment is None else names & {experiment}):
        claim = claims.take(f"compact-{name}", [])
        if claim is None:
            continue
        try:
            for table in SCHEMAS:
                all_fragments(location, table, name)  # refuses a bad file before any is changed
            for table in SCHEMAS:
                _sweep(location, table, name)
                _merge(location, table, name, claim)
        finally:
            claim.release()


def _merge(location: Location, table: str, experiment: str, claim: Claim) -> None:
    files: Files = all_fragments(location, table, experiment)
    if table == "measurements":
        # Listed before the trials are read: a trial committed meanwhile is no orphan.
        files = _without_orphans(location, experiment, files)
    small = {name: file for name, file in files.items() if file.metadata.num_rows < _LARGE}
    for batch in _batches(small):
        if len(batch) < 2:
            continue
        schema = SCHEMAS[table]
        data = ds.FileSystemDataset(
            list(batch.values()), schema.remove_metadata(), ds.ParquetFileFormat()
        )
        with reading(where(location, f"{table}/{experiment}")):
            rows = data.to_table().replace_schema_metadata(schema.metadata)
        stem = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex[:16]}"
        replaces = [name.rsplit("/", 1)[1] for name in batch]
        if not claim.renew({}):
            return
        location.write(f"{table}/{experiment}/{stem}.parquet", encode(rows, replaces))
        for name in batch:
            location.delete(name)


def _batches(files: Files) -> Iterator[dict[str, ds.ParquetFileFragment]]:
    batch: dict[str, ds.ParquetFileFragment] = {}
    count = 0
    for name, file in files.items():
        batch[name] = file
        count += file.metadata.num_rows
        if count >= _MOST:
            yield batch
            batch, count = {}, 0
    yield batch


def _without_orphans(location: Location, experiment: str, files: Files) -> Files:
    """The files all of whose rows are committed; of the others, the old ones are deleted."""
    committed = _runs(location, all_fragments(location, "trials", experiment))
    now = time.time()
    ages = {file.name: now - file.modified for file in location.files("measurements")}
    kept = {}
    for name, file in files.items():
        if pc.all(pc.is_in(_runs(location, {name: file}), committed)).as_py():
            kept[name] = file
        elif ages.get(name, 0.0) > ORPHAN_SECONDS:
            location.delete(name)
    return kept


def _runs(location: Location, files: Files) -> pa.Array:
    """The commits whose rows the files hold."""
    runs = [pa.array([], pa.string())]
    for name, file in files.items():
        with reading(where(location, name)):
            runs.append(file.to_table(columns=["run"])["run"].unique())
    return pa.concat_arrays(runs)


def _sweep(location: Location, table: str, experiment: str) -> None:
    """Delete what an interrupted compaction or write left: replaced and old temporary files."""
    for name in replaced(all_fragments(location, table, experiment)):
        location.delete(name)
    now = time.time()
    for file in location.files(f"{table}/{experiment}", TEMPORARY, hidden=True):
        if now - file.modified > ORPHAN_SECONDS:
            location.delete(file.name)
