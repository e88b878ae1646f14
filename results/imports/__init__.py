"""Data from other sources, imported into a results folder: one file for each kind.

An importer is ``import_NAME(path, results, **options) -> Imported`` (``results.extensions``). It
reads and checks everything, then writes with ``commit_import``: all of it or nothing, never twice.

An import is one experiment of the results folder. Its trials go into one file, which replaces the
files of an earlier import of the same experiment: readers switch from one to the other at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from results.errors import ResultsError, escaped
from results.schema import SCHEMAS, table
from results.storage.dataset import dataset, encode
from results.storage.location import Location
from results.storage.names import experiment_name
from results.storage.rows import KEYS, latest
from results.storage.values import NAMES
from results.store import Store

Rows = Sequence[dict[str, Any]]
_OTHER_NAME = "import under another name: --name NAME"


@dataclass
class Imported:
    """The progress or result of an import."""

    experiment: str
    results: str
    studies: int = 0
    added: int = 0
    """Trials that this import wrote."""
    recorded: int = 0
    """Trials that an earlier import wrote."""
    measurements: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    """Name and reason of each part that was left out because it cannot be imported."""
    said: list[str] = field(default_factory=list)
    """What was taken for what, in lines, where the import had to find out."""
    ignored: list[str] = field(default_factory=list)
    """Files and folders that do not belong to the data."""

    @property
    def trials(self) -> int:
        """All trials of the import that are recorded now."""
        return self.added + self.recorded

    @property
    def fresh(self) -> bool:
        """Whether this import wrote anything."""
        return self.added > 0


def commit_import(
    results: str | Path | Location,
    *,
    experiment: str,
    sources: Rows,
    studies: Rows,
    trials: Rows,
    measurements: Rows = (),
) -> Imported:
    """Write one import as ``experiment``; a second import of the same data (by the sources'
    checksums) changes nothing.

    An import of the same experiment with other rows replaces the earlier one. A crash at any moment
    leaves the trials of the one or of the other.

    Raises:
        ResultsError: a sweep has that name, another experiment has one of the trials, or the disk
            cannot be written; nothing is changed then.
    """
    experiment_name(experiment)
    stamp = {"experiment": experiment, "run": uuid.uuid4().hex[:16], "time": datetime.now(UTC)}
    given = {"sources": sources, "studies": studies, "measurements": measurements, "trials": trials}
    rows = {name: [_stamped(name, row, stamp) for row in each] for name, each in given.items()}
    tables = {name: table(name, each) for name, each in rows.items()}
    store = Store(results)
    location = store.location
    for name in KEYS:
        revision = pa.array([store.next_revision(name)] * tables[name].num_rows, pa.int64())
        place = SCHEMAS[name].get_field_index("revision")
        tables[name] = tables[name].set_column(place, SCHEMAS[name].field(place), revision)
    done = Imported(experiment, store.root, studies=len(studies), measurements=len(measurements))
    old = {name: location.files(f"{name}/{experiment}", ".parquet") for name in SCHEMAS}
    replacing = bool(old["trials"])
    if replacing and _is_recorded(location, experiment, rows["sources"], rows["trials"]):
        done.recorded = len(trials)
        return done
    recorded = store.trials(columns=["trial", "experiment"])
    elsewhere = recorded[recorded["experiment"].ne(experiment)]
    for trial in elsewhere["trial"][elsewhere["trial"].isin([row["trial"] for row in trials])]:
        message = f"trial {trial!r} is in another experiment of {location.root}"
        raise ResultsError(f"{message}, and would be lost there", hint=_OTHER_NAME)
    file = f"{experiment}/{stamp['time']:%Y%m%dT%H%M%S%f}-{stamp['run']}.parquet"
    # The checksum identifies the data of the trials: it is written after them if there are earlier
    # trials, and else before them, since trials without a source belong to a sweep.
    order = ["sources", "studies", "measurements", "trials"]
    for name in order[1:] + order[:1] if replacing else order:
        if tables[name].num_rows:
            replaces = [old_file.name.rsplit("/", 1)[1] for old_file in old[name]]
            data = encode(tables[name], replaces if name == "trials" else [])
            location.write(f"{name}/{file}", data)
    for old_files in old.values():
        for old_file in old_files:
            location.delete(old_file.name)
    done.added = len(trials)
    return done


def _is_recorded(location: Location, experiment: str, sources: Rows, trials: Rows) -> bool:
    """Whether exactly these rows are in the results folder.

    Raises:
        ResultsError: the rows there were not imported, or from another place.
    """
    recorded = dataset(location, "sources", [experiment]).to_table()
    last = latest(recorded, KEYS["sources"]).to_pylist()
    if not last:
        raise ResultsError(
            f"experiment {experiment!r} of {location.root} was not imported, and is left unchanged",
            hint=_OTHER_NAME,
        )
    ids = dataset(location, "trials", [experiment]).to_table(columns=["trial"])["trial"]
    same = set(pc.unique(ids).to_pylist()) == {row["trial"] for row in trials}
    if same and _facts(last, "checksum") == _facts(sources, "checksum"):
        return True
    if _facts(last, "address") != _facts(sources, "address"):
        raise ResultsError(
            f"experiment {experiment!r} of {location.root} was imported from "
            f"{last[0]['address']}, and is left unchanged",
            hint=_OTHER_NAME,
        )
    return False


def _stamped(name: str, row: dict[str, Any], stamp: dict[str, Any]) -> dict[str, Any]:
    columns = SCHEMAS[name].names
    named = {key: escaped(row[key]) for key in NAMES & row.keys() if isinstance(row[key], str)}
    return {**row, **named, **{key: value for key, value in stamp.items() if key in columns}}


def _facts(sources: Rows, name: str) -> set[tuple[str, str | None]]:
    return {(row["source"], row.get(name)) for row in sources}
