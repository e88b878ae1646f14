"""a TensorBoard run a trial, with its metaparameters for the HPARAMS tab

A last run, at the root of the folder, has the columns of that tab. Measurements are read once and
each run is written after its last evaluation, so that memory holds the evaluations of one trial.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from results.errors import ResultsError, escaped
from results.exports import Exported, OutputFolder, Progress
from results.exports.support import tensorboard_events as events
from results.schema import METRIC_COLUMNS, SPLITS
from results.storage.dataset import retrying
from results.storage.tables import Tables
from results.storage.values import mapping
from results.targets.trajectories import segments, trajectories

_READ = ("step", "train_seconds", *METRIC_COLUMNS, "metrics")
_ROWS = 2_000
_MANY = 1_000
"""Number of runs from which TensorBoard takes minutes to load."""
STEPS = "steps_to_target"
_COLUMNS = (
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
    results = results.with_trials(results.trial_rows)
    return retrying(lambda: _Export(results, folder, progress).run())


@dataclass
class _Export:
    """One pass over the measurements."""

    results: Tables
    folder: OutputFolder
    progress: Progress | None
    done: Exported = field(init=False)
    tags: dict[str, None] = field(init=False)
    """Tags of scalars, as a set that keeps its order."""
    kinds: dict[str, str] = field(init=False)
    """The kind of value that each name of the HPARAMS tab has."""

    def __post_init__(self) -> None:
        count = len(self.results.trial_rows)
        output = str(self.folder.path)
        notes = [f"TensorBoard is slow with so many runs ({count:,}); select some with --where"]
        self.done = Exported(
            output=output, trials=0, of=count, measurements=0, changed=0,
            next=f"tensorboard --logdir {output}", notes=notes if count > _MANY else (),
        )  # fmt: skip
        self.rows = self.results.trial_rows.select(list(_COLUMNS))
        self.tags = dict.fromkeys([STEPS, *self.folder.content.get("tags", [])])

    def run(self) -> Exported:
        counts = segments(self.results)
        if not counts.any():
            raise ResultsError(
                f"{self.results.root} has no measurements of these trials: nothing to show by step"
                if len(counts)
                else f"{self.results.root} has no trials to export",
                hint="a sweep writes measurements; points of published curves have none",
            )
        self.kinds = self._kinds()
        self._mark()
        for place, evaluations in trajectories(self.results, _READ, counts):
            self._trial(place, evaluations)
        nothing = pa.schema([]).empty_table()
        for place in np.flatnonzero(counts == 0).tolist():
            self._trial(place, nothing)
        self._mark()
        events.write(self.folder.path, 0.0, [events.columns(self.kinds, self.tags)])
        return self.done

    def _mark(self) -> None:
        self.folder.mark({"names": self.kinds, "tags": list(self.tags)})

    def _kinds(self) -> dict[str, str]:
        """The kind of value of each name, including those of earlier exports."""
        kinds: dict[str, str] = dict(self.folder.content.get("names", {}))
        for batch in self.rows.to_batches(_ROWS):
            for row in batch.to_pylist():
                for name, value in hyperparameters(row).items():
                    kind = events.kind_of(value)
                    # Text holds the values of all kinds.
                    kinds[name] = kind if kinds.setdefault(name, kind) == kind else "string"
        return dict(sorted(kinds.items()))

    def _trial(self, place: int, rows: pa.Table) -> None:
        row = self.rows.slice(place, 1).to_pylist()[0]
        path = self.folder.path / run_name(row)
        time = row["time"]
        written = time.timestamp() if isinstance(time, datetime) else 0.0
        began, evaluations = _evaluations(rows, written)
        new = events.write(path, began, self._events(row, began, evaluations))
        self.done = replace(
            self.done,
            trials=self.done.trials + 1,
            measurements=self.done.measurements + len(evaluations),
            changed=self.done.changed + new,
        )
        if self.progress is not None:
            self.progress(self.done)

    def _events(
        self, row: Mapping[str, Any], began: float, evaluations: Sequence[_Evaluation]
    ) -> Iterator[Any]:
        values = {
            name: value if events.kind_of(value) == self.kinds[name] else str(value)
            for name, value in hyperparameters(row).items()
        }
        yield events.started(began, str(row["trial"]), values)
        for step, wall_time, metrics in evaluations:
            self.tags.update(dict.fromkeys(metrics))
            yield events.scalars(step, wall_time, metrics)
        ended = evaluations[-1][1] if evaluations else began
        if row[STEPS] is not None:
            yield events.scalars(int(np.ceil(row[STEPS])), ended, {STEPS: row[STEPS]})
        failed = row["status"] == "INFEASIBLE" or row["stop_reason"] == "error"
        yield events.ended(ended, failed=failed)


_Evaluation = tuple[int, float, dict[str, float]]
"""Step, wall time and values by tag."""


def _evaluations(rows: pa.Table, committed: float) -> tuple[float, list[_Evaluation]]:
    """When the run began, and its evaluations."""
    if not len(rows):
        return committed, []
    seconds = rows["train_seconds"].to_pylist()
    for at, value in enumerate(seconds):
        if value is None or not np.isfinite(value):
            seconds[at] = seconds[at - 1] if at else 0.0
    began = committed - seconds[-1] if committed else 0.0
    columns = {name: rows[name].to_pylist() for name in METRIC_COLUMNS}
    evaluations: list[_Evaluation] = []
    for at, (step, text) in enumerate(
        zip(rows["step"].to_pylist(), rows["metrics"].to_pylist(), strict=True)
    ):
        values = {name: cells[at] for name, cells in columns.items()}
        values |= mapping(text, "metrics") if text else {}
        tags = {_tag(name): float(v) for name, v in values.items() if v is not None}
        evaluations.append((step, began + seconds[at], tags))
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


def hyperparameters(row: Mapping[str, Any]) -> dict[str, str | bool | float]:
    """What distinguishes a trial: training algorithm, batch size, workload fields (by
    ``workload.<field>`` where a metaparameter has that name), metaparameters."""
    values: dict[str, Any] = {name: row[name] for name in _ALGORITHM}
    tuned, fields = (mapping(row[name] or "{}", name) for name in ("metaparameters", "fields"))
    for name, value in fields.items():
        values[f"workload.{name}" if name in tuned or name in values else name] = value
    for name, value in tuned.items():
        values[f"tuned.{name}" if name in _ALGORITHM else name] = value
    values.setdefault("effective_learning_rate", row["effective_learning_rate"])
    return {escaped(name): _plain(value) for name, value in values.items() if value is not None}


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
