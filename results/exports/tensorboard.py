"""Trials as TensorBoard's runs: one a trial, and a last one at the root with the columns of the
HPARAMS tab.

Measurements are read once from beginning to end and each run is written when its last look has come
by, so that a trial's looks are held and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from results.dataset import retrying
from results.errors import ResultsError
from results.exports import Exported, Progress, described, events
from results.exports.folder import OutputFolder
from results.reader import Results
from results.schema import METRIC_COLUMNS
from results.targets.trajectories import stretches, trajectories
from results.user_tables.values import mapping

_READ = ("step", "train_seconds", *METRIC_COLUMNS, "metrics")
_ROWS = 2_000
STEPS = "steps_to_target"


def write(found: Results, output: str | Path, progress: Progress | None = None) -> Exported:
    """Write every trial of ``found`` as a run ``<experiment>/<optimizer>-b<batch>/<index>-<id>``.

    Scalars by step: ``<split>/<metric>`` of every metric measured, and ``steps_to_target`` at that
    step, where there is one. A run's wall time ends when its row was written, and goes back from
    there by the train_seconds of its looks (a pack's, in a pack).

    Runs that are there already stay, whatever they are of; those of ``found`` are written once more
    where they differ.

    Raises:
        ResultsError: no measurements, a folder that is not an export's, a disk that refuses.
    """
    folder = OutputFolder(output, "tensorboard")
    found = found.with_trials(found.trial_rows)
    return retrying(lambda: _Export(found, folder, progress).run())


@dataclass
class _Export:
    """One pass over the measurements."""

    found: Results
    folder: OutputFolder
    progress: Progress | None
    done: Exported = field(init=False)
    tags: dict[str, None] = field(init=False)
    """Of scalars, as a set that keeps its order."""
    kinds: dict[str, str] = field(init=False)
    """Of what trials were given, by name."""

    def __post_init__(self) -> None:
        count = len(self.found.trial_rows)
        self.done = Exported(
            kind="tensorboard", output=str(self.folder.path), trials=0, of=count,
            measurements=0, changed=0,
        )  # fmt: skip
        self.rows = self.found.trial_rows.select(list(described.COLUMNS))
        self.tags = dict.fromkeys([STEPS, *self.folder.known.get("tags", [])])

    def run(self) -> Exported:
        counted = stretches(self.found)
        if not counted.any():
            raise ResultsError(
                f"{self.found.root} has no measurements of these trials: nothing to show by step"
                if len(counted)
                else f"{self.found.root} has no trials to export",
                hint="a sweep writes measurements; points of published curves have none",
            )
        self.kinds = self._kinds()
        self._mark()
        for place, looks in trajectories(self.found, _READ, counted):
            self._trial(place, looks)
        nothing = pa.schema([]).empty_table()
        for place in np.flatnonzero(counted == 0).tolist():
            self._trial(place, nothing)
        self._mark()
        events.write(self.folder.path, 0.0, [events.columns(self.kinds, self.tags)])
        return self.done

    def _mark(self) -> None:
        self.folder.mark({"names": self.kinds, "tags": list(self.tags)})

    def _kinds(self) -> dict[str, str]:
        """What kind of value each name has, those of earlier exports among them."""
        kinds: dict[str, str] = dict(self.folder.known.get("names", {}))
        for batch in self.rows.to_batches(_ROWS):
            for row in batch.to_pylist():
                for name, value in described.given(row).items():
                    kind = events.kind_of(value)
                    # Text holds the values of all kinds.
                    kinds[name] = kind if kinds.setdefault(name, kind) == kind else "string"
        return dict(sorted(kinds.items()))

    def _trial(self, place: int, looks: pa.Table) -> None:
        row = self.rows.slice(place, 1).to_pylist()[0]
        path = self.folder.path / described.run_name(row)
        began, looked = _looks(looks, described.committed(row))
        new = events.write(path, began, self._events(row, began, looked))
        self.done = replace(
            self.done,
            trials=self.done.trials + 1,
            measurements=self.done.measurements + len(looked),
            changed=self.done.changed + new,
        )
        if self.progress is not None:
            self.progress(self.done)

    def _events(
        self, row: Mapping[str, Any], began: float, looks: Sequence[_Look]
    ) -> Iterator[Any]:
        given = {
            name: value if events.kind_of(value) == self.kinds[name] else str(value)
            for name, value in described.given(row).items()
        }
        yield events.started(began, str(row["trial"]), given)
        for step, wall_time, values in looks:
            self.tags.update(dict.fromkeys(values))
            yield events.scalars(step, wall_time, values)
        ended = looks[-1][1] if looks else began
        if row[STEPS] is not None:
            yield events.scalars(int(np.ceil(row[STEPS])), ended, {STEPS: row[STEPS]})
        yield events.ended(ended, failed=described.failed(row))


_Look = tuple[int, float, dict[str, float]]


def _looks(rows: pa.Table, committed: float) -> tuple[float, list[_Look]]:
    """When the run began, and of each look its step, wall time and values by tag."""
    if not len(rows):
        return committed, []
    seconds = rows["train_seconds"].to_pylist()
    for at, value in enumerate(seconds):
        if value is None or not np.isfinite(value):
            seconds[at] = seconds[at - 1] if at else 0.0
    began = committed - seconds[-1] if committed else 0.0
    looks: list[_Look] = [
        (step, began + after, {}) for step, after in zip(rows["step"].to_pylist(), seconds,
                                                         strict=True)
    ]  # fmt: skip
    for name in METRIC_COLUMNS:
        for (_, _, values), value in zip(looks, rows[name].to_pylist(), strict=True):
            if value is not None:
                values[described.tag(name)] = float(value)
    for (_, _, values), text in zip(looks, rows["metrics"].to_pylist(), strict=True):
        for name, value in (mapping(text, "metrics") if text else {}).items():
            if value is not None:
                values[described.tag(name)] = float(value)
    return began, looks
