"""a CSV or Parquet file: batch_size and steps, or whole curves

The file is read as ``user_tables.curves`` reads it, after its columns were renamed. Each trial
keeps the row that it is of, as the file has it, in ``as_published``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from results.errors import ResultsError
from results.extensions import Option
from results.imports import Imported
from results.imports.support.tables import commit_table
from results.storage.location import Location
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
    file = original.renamed(columns or {})
    for column in _RESERVED:
        if file.has(column):
            raise ResultsError(
                f"{path} has a column {column!r}, a name that the import uses itself",
                hint=f"give it another name: --map {column}_there={column}",
            )
    renamed = ", ".join(f"{new} is its {old}" for new, old in (columns or {}).items())
    return commit_table(
        file,
        results,
        name=name,
        source={"citation": citation, "licence": licence, "notes": renamed or None},
        files=[path],
        options=sorted((columns or {}).items()),
        # Each row of the file by the name of its point.
        published={
            place.replace(" ", "-"): {name: cells[at] for name, cells in original.columns.items()}
            for at, place in enumerate(original.places)
        },
    )
