"""``python -m validation.package_published REFERENCE_DIR [FOLDER]``: make the packaged data again.

From the three CSV files of ``REFERENCE_DIR``, into FOLDER, else beside this file. The same files
make the same rows: times and ids are fixed. Other Parquet files of the tables there go.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from results.counts import count
from results.errors import ResultsError
from results.schema import SCHEMAS, table
from results.storage.dataset import encode
from results.storage.location import Location
from validation import published_convergence as convergence_points
from validation import published_curves as curves
from validation.published_origins import MADE, SOURCES, Origin

Row = dict[str, Any]
_READERS: Mapping[str, Callable[[Path, str], tuple[list[Row], list[Row]]]] = {
    "shallue_2019_digitized": curves.digitized,
    "zhang_2024": curves.language_models,
    "mlperf_rcp": convergence_points.runs,
}


def tables(reference: Path) -> dict[str, dict[str, Any]]:
    """Source to its tables by name, as Arrow.

    Raises:
        ResultsError: a file is missing, or a row has no place.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, origin in SOURCES.items():
        path = reference / origin.file
        if not path.is_file():
            raise ResultsError(f"there is no file {path}", hint="name the folder that holds it")
        studies, trials = _READERS[name](path, name)
        rows = {"studies": studies, "trials": trials, "sources": [_source(name, origin, path)]}
        found[name] = {
            each: table(each, [_fixed(each, name, row) for row in own])
            for each, own in rows.items()
        }
    return found


def make(reference: Path, folder: Path) -> int:
    """Write the packaged data under ``folder``; the number of trials.

    Raises:
        ResultsError: as ``tables``, or a folder that cannot be written.
    """
    made = tables(reference)
    location = Location(folder)
    for name in SCHEMAS:
        for file in location.files(name, ".parquet"):
            location.delete(file.name)
    for source, own in made.items():
        for name, rows in own.items():
            location.write(f"{name}/{source}/{source}.parquet", encode(rows))
    return sum(own["trials"].num_rows for own in made.values())


def _source(name: str, origin: Origin, path: Path) -> Row:
    return {
        "source": name,
        "citation": origin.citation,
        "licence": origin.licence,
        "address": origin.address,
        "checksum": origin.checksum(path),
        "notes": origin.notes,
    }


def _fixed(name: str, source: str, row: Row) -> Row:
    fixed = {"experiment": source, "time": MADE, "run": source}
    return {**row, **{key: fixed[key] for key in fixed if key in SCHEMAS[name].names}}


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m validation.package_published REFERENCE_DIR [FOLDER]")
    here = Path(__file__).parent.parent / "results" / "published"
    try:
        written = make(Path(sys.argv[1]), Path(*sys.argv[2:]) if sys.argv[2:] else here)
        print(count(written, "trial"))
    except ResultsError as error:
        sys.exit(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""))
