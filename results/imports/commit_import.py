"""Writing what was imported: all of it or nothing, and never twice.

An import is one experiment of the results folder. Its trials go into one file, which stands for
the files of an earlier import of the same experiment: readers pass from one to the other at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from results.dataset import dataset
from results.errors import ResultsError
from results.rows import KEYS, latest
from results.schema import SCHEMAS, table
from results.storage.location import Location
from results.store import Store, encode, experiment_name

Rows = Sequence[dict[str, Any]]
_OTHER_NAME = "import under another name: --name NAME"


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What an import did. ``fresh`` is False where all of it was there already."""

    experiment: str
    results: str
    studies: int
    trials: int
    measurements: int
    fresh: bool = True
    refused: Sequence[tuple[str, str]] = ()
    """Name and reason of what could not be placed, where an import goes on without it."""
    ignored: Sequence[str] = ()
    """Files and folders that are none of its."""


def land(
    results: str | Path | Location,
    *,
    experiment: str,
    sources: Rows,
    studies: Rows,
    trials: Rows,
    measurements: Rows = (),
) -> Imported:
    """Write one import as ``experiment``; the same again (by the sources' checksums) is a no-op.

    An import of the same experiment with other rows takes the place of the earlier one. A crash
    at any moment leaves the trials of the one or of the other.

    Raises:
        ResultsError: a sweep has that name, or a disk that refuses; nothing is changed then.
    """
    experiment_name(experiment)
    stamp = {"experiment": experiment, "run": uuid.uuid4().hex[:16], "time": datetime.now(UTC)}
    held = {"sources": sources, "studies": studies, "measurements": measurements, "trials": trials}
    tables = {
        name: table(name, [_stamped(name, row, stamp) for row in rows])
        for name, rows in held.items()
    }
    store = Store(results)
    done = Imported(
        experiment=experiment,
        results=store.root,
        studies=len(studies),
        trials=len(trials),
        measurements=len(measurements),
    )
    location = store.location
    old = {name: location.files(f"{name}/{experiment}", ".parquet") for name in SCHEMAS}
    again = bool(old["trials"])
    if again and _there_already(location, experiment, sources, trials):
        return replace(done, fresh=False)
    file = f"{experiment}/{stamp['time']:%Y%m%dT%H%M%S%f}-{stamp['run']}.parquet"
    # The checksum says what the trials are of: it comes after them where others are there, and
    # before them where none are, since trials without a source are somebody's sweep.
    order = ["sources", "studies", "measurements", "trials"]
    for name in order[1:] + order[:1] if again else order:
        if tables[name].num_rows:
            replaced = [one.name.rsplit("/", 1)[1] for one in old[name]] if name == "trials" else []
            location.write(f"{name}/{file}", encode(tables[name], replaced))
    for one in (one for files in old.values() for one in files):
        location.delete(one.name)
    return done


def _there_already(location: Location, experiment: str, sources: Rows, trials: Rows) -> bool:
    """Whether these very rows are there.

    Raises:
        ResultsError: what is there was not imported, or not from there.
    """
    known = dataset(location, "sources", [experiment]).to_table()
    last = latest(known, KEYS["sources"]).to_pylist()
    if not last:
        raise ResultsError(
            f"experiment {experiment!r} of {location.root} was not imported, and stays as it is",
            hint=_OTHER_NAME,
        )
    there = dataset(location, "trials", [experiment]).to_table(columns=["trial"])["trial"]
    same = set(pc.unique(there).to_pylist()) == {row["trial"] for row in trials}
    if same and _facts(last, "checksum") == _facts(sources, "checksum"):
        return True
    if _facts(last, "address") != _facts(sources, "address"):
        raise ResultsError(
            f"experiment {experiment!r} of {location.root} was imported from "
            f"{last[0]['address']}, and stays as it is",
            hint=_OTHER_NAME,
        )
    return False


def _stamped(name: str, row: dict[str, Any], stamp: dict[str, Any]) -> dict[str, Any]:
    columns = SCHEMAS[name].names
    return {**row, **{key: value for key, value in stamp.items() if key in columns}}


def _facts(sources: Rows, name: str) -> set[tuple[str, str | None]]:
    return {(row["source"], row.get(name)) for row in sources}
