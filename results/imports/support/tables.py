"""A table of a user's as an experiment of a results folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from results.errors import ResultsError, escaped
from results.imports import Imported, commit_import
from results.storage.location import Location
from results.storage.masking import masked
from results.storage.names import experiment_name
from results.user_tables.curves import read_table
from results.user_tables.table_file import TableFile


def commit_table(
    file: TableFile,
    results: str | Path | Location,
    *,
    name: str | None,
    source: Mapping[str, str | None],
    files: Sequence[Path],
    options: Any = None,
    published: Mapping[str, Mapping[str, Any]] | None = None,
) -> Imported:
    """Write the rows of a table as one experiment.

    Args:
        name: of the experiment; that of the file unless given.
        source: its citation, licence and notes.
        files: the files that were read: their bytes and ``options`` identify the import.
        published: the row of its source by the name of a point.

    Raises:
        ResultsError: as ``read_table`` and ``commit_import``, or a name that cannot be a folder's.
    """
    try:
        experiment = experiment_name(name or file.path.stem)
    except ResultsError as error:
        error.hint = f"give it another: --name NAME ({error.hint})"
        raise
    memory = read_table(replace(file, called=experiment))
    studies, trials, measurements = (
        memory.table(each).to_pylist() for each in ("studies", "trials", "measurements")
    )
    for trial in trials:
        trial["source"] = trial["source"] or experiment
        place = str(trial["trial"]).removeprefix(f"{experiment}-")
        trial["as_published"] = (published or {}).get(place)
    sources = {trial["study"]: trial["source"] for trial in trials}
    digest = hashlib.sha256(repr(options).encode())
    for each in files:
        digest.update(each.read_bytes())
    facts = {
        **{key: text and escaped(masked(text)) for key, text in source.items()},
        "address": escaped(masked(str(file.path.absolute()))),
        "checksum": f"sha256:{digest.hexdigest()}",
    }
    return commit_import(
        results,
        experiment=experiment,
        sources=[{"source": each, **facts} for each in dict.fromkeys(sources.values())],
        studies=[{**study, "source": sources[study["study"]]} for study in studies],
        trials=trials,
        measurements=measurements,
    )
