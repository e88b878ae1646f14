"""a TensorBoard run a trial, with its metaparameters for the HPARAMS tab

Memory holds the evaluations of one experiment. TensorBoard makes the columns of that tab itself, of
what the runs have.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from results.errors import ResultsError, escaped
from results.exports import Exported, OutputFolder, Progress
from results.exports.support import tensorboard_events as events
from results.schema import METRIC_COLUMNS, SPLITS
from results.storage.dataset import retrying
from results.storage.tables import Tables
from results.storage.values import mapping

READ = ("trial", "step", "train_seconds", *METRIC_COLUMNS, "metrics")
_MANY = 1_000
"""Number of runs from which TensorBoard takes minutes to load."""
STEPS = "steps_to_target"
COLUMNS = (
    *("experiment", "study", "trial", "index", "role", "workload", "optimizer", "schedule"),
    *("batch_size", "fields", "metaparameters", "effective_learning_rate", "seed", "status"),
    *("stop_reason", "steps_to_target", "steps_run", "time"),
)
"""The columns of a trial's row that are used here."""

_ALGORITHM = ("experiment", "workload", "optimizer", "schedule", "batch_size", "role")
_HEX = re.compile(r"[0-9a-f]{16,}")
_ODD = re.compile(r"[^A-Za-z0-9_.+-]+")
_LONGEST = 80


def export_tensorboard(
    results: Tables, output: str | Path, progress: Progress | None = None
) -> Exported:
    """Write every trial as a run ``<experiment>/<optimizer>-b<batch>/<index>-<id>``.

    Scalars by step: ``<split>/<metric>`` of every metric measured, and ``steps_to_target`` at that
    step, where there is one. A run's wall time ends when its row was written; its evaluations come
    before by their train_seconds (a pack's, in a pack).

    All runs that are in the folder already stay; those of ``results`` are written again if they
    differ.

    Raises:
        ResultsError: no measurements, a folder that is not an export's, or the disk cannot be
            written.
    """
    folder = OutputFolder(output, "tensorboard")
    rows = results.trial_rows
    count = len(rows)
    if not count or not retrying(lambda: results.measured()[0].count_rows()):
        raise ResultsError(
            f"{results.root} has no measurements of these trials: nothing to show by step"
            if count
            else f"{results.root} has no trials to export",
            hint="a sweep writes measurements; points of published curves have none",
        )
    folder.mark()
    notes = [f"TensorBoard is slow with so many runs ({count:,}); select some with --where"]
    done = Exported(
        output=str(folder.path), trials=0, of=count, measurements=0, changed=0,
        next=f"tensorboard --logdir {folder.path}", notes=notes if count > _MANY else (),
    )  # fmt: skip
    for experiment in pc.unique(rows["experiment"]):
        part = results.with_trials(rows.filter(pc.equal(rows["experiment"], experiment)))
        measured = by_trial(part.measurement_rows(READ))
        for row in part.trial_rows.select(list(COLUMNS)).to_pylist():
            began, evaluations = evaluated(measured.get(row["trial"]), row["time"])
            path = folder.path / run_name(row)
            new = events.write(path, began, events_of(row, began, evaluations))
            done = replace(
                done,
                trials=done.trials + 1,
                measurements=done.measurements + len(evaluations),
                changed=done.changed + new,
            )
            if progress is not None:
                progress(done)
    return done


def by_trial(rows: pa.Table) -> dict[str, pa.Table]:
    """The measurements of each trial, by step."""
    rows = rows.sort_by([("trial", "ascending"), ("step", "ascending")])
    names, starts = np.unique(rows["trial"].to_numpy(), return_index=True)
    ends = [*starts[1:], len(rows)]
    return {
        name: rows.slice(start, end - start)
        for name, start, end in zip(names, starts, ends, strict=True)
    }


def events_of(
    row: Mapping[str, Any], began: float, evaluations: Sequence[Evaluation]
) -> Iterator[Any]:
    """The events of a trial's run, from its row and its evaluations."""
    yield events.started(began, str(row["trial"]), hyperparameters(row))
    for step, wall_time, metrics in evaluations:
        yield events.scalars(step, wall_time, metrics)
    ended = evaluations[-1][1] if evaluations else began
    if row[STEPS] is not None:
        yield events.scalars(int(np.ceil(row[STEPS])), ended, {STEPS: row[STEPS]})
    yield events.ended(ended, failed=failed(row))


def failed(row: Mapping[str, Any]) -> bool:
    """Whether a trial diverged, or its own code raised."""
    return bool(row["status"] == "INFEASIBLE" or row["stop_reason"] == "error")


Evaluation = tuple[int, float, dict[str, float]]
"""Step, wall time in seconds since the epoch, and values by tag (``validation/error``)."""


def evaluated(rows: pa.Table | None, written: datetime | None) -> tuple[float, list[Evaluation]]:
    """When the run began, and its evaluations."""
    committed = written.timestamp() if written is not None else 0.0
    if rows is None:
        return committed, []
    seconds = rows["train_seconds"].to_pylist()
    for at, value in enumerate(seconds):
        if value is None or not np.isfinite(value):
            seconds[at] = seconds[at - 1] if at else 0.0
    began = committed - seconds[-1] if committed else 0.0
    evaluations: list[Evaluation] = []
    for row, second in zip(rows.to_pylist(), seconds, strict=True):
        values = {name: row[name] for name in METRIC_COLUMNS}
        values |= mapping(row["metrics"], "metrics") if row["metrics"] else {}
        tags = {_tag(name): float(v) for name, v in values.items() if v is not None}
        evaluations.append((row["step"], began + second, tags))
    return began, evaluations


def run_name(row: Mapping[str, Any]) -> str:
    """``digits/momentum-b00064/003-1f0c2a9e``: the first eight places of the trial's id make it
    unique, and no other trial can change it. Leading zeros make it sort."""
    experiment = _part(row["experiment"] or "trials")
    study = f"b{row['batch_size']:05d}"
    if row["optimizer"]:
        study = f"{_part(row['optimizer'])}-{study}"
    name = str(row["trial"])
    short = name if _HEX.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()
    index = "" if row["index"] is None else f"{row['index']:03d}-"
    return f"{experiment}/{study}/{index}{short[:8]}"


def settings(row: Mapping[str, Any]) -> dict[str, Any]:
    """What distinguishes a trial: training algorithm, batch size, workload fields (by
    ``workload.<field>`` where a metaparameter has that name), metaparameters."""
    values: dict[str, Any] = {name: row[name] for name in _ALGORITHM}
    tuned, fields = (mapping(row[name] or "{}", name) for name in ("metaparameters", "fields"))
    for name, value in fields.items():
        values[f"workload.{name}" if name in tuned or name in values else name] = value
    for name, value in tuned.items():
        values[f"tuned.{name}" if name in _ALGORITHM else name] = value
    values.setdefault("effective_learning_rate", row["effective_learning_rate"])
    return {name: value for name, value in values.items() if value is not None}


def hyperparameters(row: Mapping[str, Any]) -> dict[str, str | bool | float]:
    """The same in the types that TensorBoard has."""
    return {escaped(name): _plain(value) for name, value in settings(row).items()}


def _tag(metric: str) -> str:
    """``validation_error`` is ``validation/error``; a name without a split stays as it is."""
    split, _, rest = escaped(metric).partition("_")
    return f"{split}/{rest}" if split in SPLITS and rest else escaped(metric)


def _part(text: Any) -> str:
    """``text`` as a folder's name on any system."""
    return _ODD.sub("-", str(text)).strip(".-")[:_LONGEST] or "unnamed"


def _plain(value: Any) -> str | bool | float:
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, bool):
        return value
    return float(value) if isinstance(value, int | float) else json.dumps(value)
