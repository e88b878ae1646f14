"""a CSV or Parquet file: batch_size and steps, or whole curves

The file is read as ``user_tables.curves`` reads it, after its columns were renamed. Each trial
keeps the row that it is of, as the file has it, in ``as_published``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from results.errors import ResultsError, escaped
from results.extensions import Option
from results.imports import Imported, commit_import
from results.storage.location import Location
from results.storage.masking import masked
from results.storage.names import experiment_name
from results.user_tables.curves import read_table
from results.user_tables.table_file import TableFile

_RESERVED = ("experiment", "study", "trial")


def import_csv(
    path: Path,
    results: str | Path | Location,
    *,
    columns: Annotated[
        Mapping[str, str] | None,
        Option(
            help="A column of the file under its name here: --map batch_size=bs --map steps=iters.",
            flag="--map",
            metavar="NAME=THEIRS",
        ),
    ] = None,
    name: Annotated[
        str | None, "The experiment that the rows become, and their source; the file's name."
    ] = None,
    citation: Annotated[str | None, "Whose data it is, for the sources."] = None,
    licence: Annotated[str | None, "What may be done with it, for the sources."] = None,
) -> Imported:
    """Import the rows of a file into ``results`` as the experiment ``name``.

    Raises:
        ResultsError: a row that cannot be placed, with its line; nothing is written.
    """
    original = TableFile.read(path)
    experiment = _experiment(name or path.stem)
    file = replace(original.renamed(columns or {}), called=experiment)
    for column in _RESERVED:
        if file.has(column):
            raise ResultsError(
                f"{path} has a column {column!r}, a name that the import uses itself",
                hint=f"give it another name: --map {column}_there={column}",
            )
    memory = read_table(file)
    rows = {name: memory.table(name).to_pylist() for name in ("studies", "trials", "measurements")}
    # Each row of the file by the name of its point.
    published = {
        place.replace(" ", "-"): {name: cells[at] for name, cells in original.columns.items()}
        for at, place in enumerate(original.places)
    }
    for trial in rows["trials"]:
        trial["source"] = trial["source"] or experiment
        trial["as_published"] = published.get(str(trial["trial"]).removeprefix(f"{experiment}-"))
    by_study = {trial["study"]: trial["source"] for trial in rows["trials"]}
    facts: dict[str, Any] = {
        "citation": citation and escaped(masked(citation)),
        "licence": licence and escaped(masked(licence)),
        "address": escaped(masked(str(path.absolute()))),
        "checksum": _checksum(path, columns or {}),
        "notes": ", ".join(f"{new} is its {old}" for new, old in (columns or {}).items()) or None,
    }
    return commit_import(
        results,
        experiment=experiment,
        sources=[{"source": source, **facts} for source in dict.fromkeys(by_study.values())],
        studies=[{**study, "source": by_study[study["study"]]} for study in rows["studies"]],
        trials=rows["trials"],
        measurements=rows["measurements"],
    )


def _experiment(name: str) -> str:
    try:
        return experiment_name(name)
    except ResultsError as error:
        error.hint = f"give it another: --name NAME ({error.hint})"
        raise


def _checksum(path: Path, columns: Mapping[str, str]) -> str:
    """The checksum of the bytes and of the options with which they were read."""
    digest = hashlib.sha256(path.read_bytes())
    for pair in sorted(columns.items()):
        digest.update("=".join(pair).encode())
    return f"sha256:{digest.hexdigest()}"
