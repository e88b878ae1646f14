"""Runs from a table of others as rows of the dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results.errors import ResultsError, escaped
from results.imports import Imported, commit_import
from results.schema import GROUP_COLUMNS, METAPARAMETERS
from results.storage.location import Location
from results.storage.masking import masked
from results.storage.names import experiment_name
from results.user_tables.table_file import TableFile
from results.user_tables.trials import study_of

FINAL = "final"
"""The role of a run that was measured at its end alone."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training run; ``name`` distinguishes it from the others of its import."""

    name: str
    batch_size: int
    measurements: Sequence[tuple[int, Mapping[str, float]]]
    """Steps and the metrics there, ascending."""
    steps_run: int
    ended: bool = True
    """False: it diverged."""
    role: str = "repeat"
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of its trial: workload, model, optimizer, fields, …"""
    metaparameters: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] | None = None
    """The row of the file."""


def commit_runs(
    results: str | Path | Location,
    runs: Sequence[Run],
    *,
    experiment: str,
    source: Mapping[str, Any],
    files: Sequence[Path],
    options: Any = None,
) -> Imported:
    """Write ``runs`` as one experiment.

    Args:
        source: its citation, licence and notes.
        files: the files that were read: their bytes and ``options`` identify the import.

    Raises:
        ResultsError: as ``commit_import``, or a name that cannot be a folder's.
    """
    try:
        experiment_name(experiment)
    except ResultsError as error:
        error.hint = f"give it another: --name NAME ({error.hint})"
        raise
    digest = hashlib.sha256(repr(options).encode())
    for file in files:
        digest.update(file.read_bytes())
    trials, measurements = [], []
    for run in runs:
        trial = _trial(run, experiment)
        trials.append(trial)
        keys = {key: trial[key] for key in ("experiment", "study", "trial")}
        for step, metrics in run.measurements:
            examples = step * run.batch_size
            measurements.append({**keys, "step": step, "examples": examples, "metrics": metrics})
    studies: dict[str, dict[str, Any]] = {}
    for trial in trials:
        notes = trial.pop("notes", None)
        studies[trial["study"]] = {
            **{name: trial.get(name) for name in GROUP_COLUMNS},
            "notes": notes,
        }
    address = files[0] if len(files) == 1 else files[0].parent
    facts = {
        **source,
        "source": experiment,
        "address": escaped(masked(str(address.absolute()))),
        "checksum": f"sha256:{digest.hexdigest()}",
    }
    return commit_import(
        results,
        experiment=experiment,
        sources=[facts],
        studies=list(studies.values()),
        trials=trials,
        measurements=measurements,
    )


def _trial(run: Run, experiment: str) -> dict[str, Any]:
    columns = {name: value for name, value in run.columns.items() if value is not None}
    used = {name: value for name, value in run.metaparameters.items() if value is not None}
    trial = {
        "experiment": experiment,
        "source": experiment,
        **columns,
        **{name: value for name, value in used.items() if name in METAPARAMETERS},
        "batch_size": run.batch_size,
    }
    return {
        **trial,
        "study": study_of(trial),
        "trial": f"{experiment}-{run.name}",
        "role": run.role,
        "status": "COMPLETE" if run.ended else "INFEASIBLE",
        "stop_reason": columns.get("stop_reason", "budget") if run.ended else "diverged",
        "steps_run": run.steps_run,
        "examples_run": run.steps_run * run.batch_size,
        "metaparameters": used or None,
        "as_published": run.published,
    }


def needed(file: TableFile, *columns: str) -> None:
    """Refuse a file without these columns, all that are missing in one line.

    Raises:
        ResultsError: one is missing.
    """
    missing = [name for name in columns if not file.has(name)]
    if missing:
        raise ResultsError(
            f"{file.path} line 1: no column {', '.join(map(repr, missing))}",
            hint=f"it has {', '.join(file.columns)}; another name is read by --map NAME=THEIRS",
        )


def size_of(file: TableFile, row: int, value: float | None) -> int:
    """A batch size of a row, checked.

    Raises:
        ResultsError: it is missing, or so large that examples are beyond 64 bits.
    """
    if value is None or not 1 <= value < 2**40:
        raise file.fail(row, f"batch_size is {value}, not a number of examples")
    return int(value)
