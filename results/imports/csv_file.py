"""``import csv``: points or whole curves of a CSV or Parquet file, kept in a results folder.

The file is read as ``user_tables.curves`` reads it, after its columns were renamed. Each trial
keeps the row that it is of, in the file's own words, as ``as_published``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from results.errors import ResultsError, escaped
from results.imports.commit_import import Imported, land
from results.storage.masking import masked
from results.store import experiment_name
from results.user_tables.curves import read_sheet
from results.user_tables.source import Memory
from results.user_tables.table_file import TableFile

_OURS = ("experiment", "study", "trial")


def take_in(
    path: Path,
    results: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    name: str | None = None,
    citation: str | None = None,
    licence: str | None = None,
) -> Imported:
    """Bring the rows of a file into ``results`` as the experiment ``name``.

    Args:
        columns: what its columns are called here: ``{"batch_size": "bs", "steps": "iters"}``.
        name: of the experiment, and of the source where the file has no column of that name; the
            file's own unless given.

    Raises:
        ResultsError: a row that cannot be placed, with its line; nothing is written.
    """
    original = TableFile.read(path)
    called = _called(name or path.stem)
    sheet = replace(original.renamed(columns or {}), called=called)
    for column in _OURS:
        if sheet.has(column):
            raise ResultsError(
                f"{path} has a column {column!r}, which an import names itself",
                hint=f"give it another name: --map {column}_there={column}",
            )
    found = read_sheet(sheet)
    own = _own(original)
    trials = _rows(found, "trials")
    for trial in trials:
        trial["source"] = trial["source"] or called
        trial["as_published"] = own.get(str(trial["trial"]).removeprefix(f"{called}-"))
    by_study = {trial["study"]: trial["source"] for trial in trials}
    studies = _rows(found, "studies")
    return land(
        results,
        experiment=called,
        sources=[
            {
                "source": source,
                "citation": citation and escaped(masked(citation)),
                "licence": licence and escaped(masked(licence)),
                "address": escaped(masked(str(path.absolute()))),
                "checksum": _checksum(path, columns or {}),
                "notes": ", ".join(f"{new} is its {old}" for new, old in (columns or {}).items())
                or None,
            }
            for source in dict.fromkeys(by_study.values())
        ],
        studies=[{**study, "source": by_study[study["study"]]} for study in studies],
        trials=trials,
        measurements=_rows(found, "measurements"),
    )


def _rows(found: Memory, name: str) -> list[dict[str, Any]]:
    return list(found.table(name).to_pylist())


def _own(sheet: TableFile) -> dict[str, dict[str, Any]]:
    """Each row of the file, by what a point that it makes is called."""
    return {
        place.replace(" ", "-"): {name: cells[at] for name, cells in sheet.columns.items()}
        for at, place in enumerate(sheet.places)
    }


def _called(name: str) -> str:
    try:
        return experiment_name(name)
    except ResultsError as error:
        error.hint = f"give it another: --name NAME ({error.hint})"
        raise


def _checksum(path: Path, columns: Mapping[str, str]) -> str:
    """Of the bytes, and of how they were read."""
    digest = hashlib.sha256(path.read_bytes())
    for pair in sorted(columns.items()):
        digest.update("=".join(pair).encode())
    return f"sha256:{digest.hexdigest()}"
