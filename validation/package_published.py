"""``python -m validation.package_published REFERENCE_DIR [FOLDER]``: make the packaged data again.

It reads the three CSV files of ``REFERENCE_DIR`` and writes into FOLDER, by default beside this
file. The same files make the same rows: times and ids are fixed. Other Parquet files of these
tables are deleted.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from results.counts import count
from results.errors import ResultsError
from results.schema import SCHEMAS, table
from results.storage.dataset import encode
from results.storage.location import Location
from validation import published_curves as curves

MADE = datetime(2026, 11, 21, tzinfo=UTC)
"""The time of every packaged row: fixed, so that the same numbers make the same rows."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A source: the file that its numbers are read from, and its row in ``sources``."""

    file: str
    citation: str
    licence: str
    address: str
    notes: str

    def checksum(self, path: Path) -> str:
        return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


SOURCES: Mapping[str, Origin] = {
    "shallue_2019_digitized": Origin(
        file="shallue_2019_digitized.csv",
        citation="C. J. Shallue, J. Lee, J. Antognini, J. Sohl-Dickstein, R. Frostig, G. E. Dahl: "
        "Measuring the Effects of Data Parallelism on Neural Network Training. JMLR 20(112), 2019",
        licence="Apache-2.0",
        address="https://github.com/google-research/batch_science",
        notes="Read off the rendered figures of the authors' notebook, with a reading error of "
        "about 3 %, 10 % where another series hides the marker. Each point is the least of about "
        "100 tuned trials with one seed each: it is not minimized over again, and has no repeats.",
    ),
    "zhang_2024": Origin(
        file="llm_2024.csv",
        citation="H. Zhang, D. Morwani, N. Vyas, J. Wu, D. Zou, U. Ghai, D. Foster, S. Kakade: "
        "How Does Critical Batch Size Scale in Pre-training? arXiv:2410.21676, 2024",
        licence="MIT",
        address="https://github.com/hlzhang109/critical-batch-size",
        notes="Steps as the authors fitted them; their log says other steps in five places, which "
        "as_published keeps as steps_logged. An example is a sequence of 512 tokens of C4. "
        "adamw_ewa is AdamW with an exponential average of the weights.",
    ),
    "mlperf_rcp": Origin(
        file="mlperf_rcp.csv",
        citation="MLPerf Training and HPC reference convergence points, MLCommons; P. Mattson et "
        "al.: MLPerf Training Benchmark, MLSys 2020 (arXiv:1910.01500)",
        licence="Apache-2.0",
        address="https://github.com/mlcommons/logging",
        notes="Every row is a run with a seed of its own, of the newest usable version of each "
        "benchmark. The raw unit differs by benchmark: see as_published. Values are rounded to the "
        "evaluation period, hence ties. Hyperparameters were tuned again for each batch size, by "
        "different people.",
    ),
}

Row = dict[str, Any]
_READERS: Mapping[str, Callable[[Path, str], tuple[list[Row], list[Row]]]] = {
    "shallue_2019_digitized": curves.digitized,
    "zhang_2024": curves.language_models,
    "mlperf_rcp": curves.convergence_points,
}


def tables(reference: Path) -> dict[str, dict[str, Any]]:
    """Source to its tables by name, as Arrow.

    Raises:
        ResultsError: a file is missing, or a row has no place.
    """
    made: dict[str, dict[str, Any]] = {}
    for name, origin in SOURCES.items():
        path = reference / origin.file
        if not path.is_file():
            raise ResultsError(f"there is no file {path}", hint="name the folder that holds it")
        studies, trials = _READERS[name](path, name)
        rows = {"studies": studies, "trials": trials, "sources": [_source(name, origin, path)]}
        made[name] = {
            each: table(each, [_fixed(each, name, row) for row in given])
            for each, given in rows.items()
        }
    return made


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
    for source, by_name in made.items():
        for name, rows in by_name.items():
            location.write(f"{name}/{source}/{source}.parquet", encode(rows))
    return sum(by_name["trials"].num_rows for by_name in made.values())


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
