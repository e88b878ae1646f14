"""a TensorBoard run a trial, with its metaparameters for the HPARAMS tab

A last run, at the root of the folder, has the columns of that tab. Measurements are read once and
each run is written after its last evaluation, so that memory holds the evaluations of one trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from results.errors import ResultsError
from results.exports import Exported, OutputFolder, Progress
from results.exports.support import tensorboard_events as events
from results.exports.support import tensorboard_runs as runs
from results.schema import METRIC_COLUMNS
from results.storage.dataset import retrying
from results.storage.tables import Tables
from results.storage.values import mapping
from results.targets.trajectories import segments, trajectories

_READ = ("step", "train_seconds", *METRIC_COLUMNS, "metrics")
_ROWS = 2_000
_MANY = 1_000
"""Number of runs from which TensorBoard takes minutes to load."""
STEPS = "steps_to_target"


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
        self.rows = self.results.trial_rows.select(list(runs.COLUMNS))
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
                for name, value in runs.hyperparameters(row).items():
                    kind = events.kind_of(value)
                    # Text holds the values of all kinds.
                    kinds[name] = kind if kinds.setdefault(name, kind) == kind else "string"
        return dict(sorted(kinds.items()))

    def _trial(self, place: int, rows: pa.Table) -> None:
        row = self.rows.slice(place, 1).to_pylist()[0]
        path = self.folder.path / runs.run_name(row)
        began, evaluations = _evaluations(rows, runs.committed(row))
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
            for name, value in runs.hyperparameters(row).items()
        }
        yield events.started(began, str(row["trial"]), values)
        for step, wall_time, metrics in evaluations:
            self.tags.update(dict.fromkeys(metrics))
            yield events.scalars(step, wall_time, metrics)
        ended = evaluations[-1][1] if evaluations else began
        if row[STEPS] is not None:
            yield events.scalars(int(np.ceil(row[STEPS])), ended, {STEPS: row[STEPS]})
        yield events.ended(ended, failed=runs.failed(row))


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
        tags = {runs.tag(name): float(v) for name, v in values.items() if v is not None}
        evaluations.append((step, began + seconds[at], tags))
    return began, evaluations
