"""The observer of a sweep that hands what is recorded to trackers, in a thread of its own.

The driver hears of evaluations when they are committed with their trial's row: a run is written
whole then, within half a minute after its trial has ended.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

from batchscale.output.errors import summary_line
from batchscale.tracking.tracker import Tracker, TrialRun, tracker
from experiments.scheduling.messages import Ended, Event, Note, Observer, Stage
from results.errors import ClearError
from results.exports import tensorboard as runs
from results.storage.dataset import of_commit
from results.storage.location import Location
from results.storage.masking import masked

_COLUMNS = (*runs.COLUMNS, "target_metric", "target_value", "lower_is_better")


class Tracking:
    """``with Tracking(["wandb:mine"], location, "digits", observer) as observer: …``.

    At its end it waits until the trackers have what was recorded. One that raises is off from then
    on, which a note says once.

    Args:
        experiment: whose trials are written.
        observer: gets every event too, and the notes.

    Raises:
        CommandError, ResultsError: a tracker that there is not, or a folder of something else.
    """

    def __init__(
        self, specs: Sequence[str], location: Location, experiment: str, observer: Observer
    ) -> None:
        self._location, self._experiment, self._observer = location, experiment, observer
        self._commits: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._failures: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._trackers: dict[str, Tracker] = {}
        for spec in specs:
            try:
                self._trackers[spec] = tracker(spec)
            except ClearError:
                raise
            except Exception as error:
                self._turn_off(spec, error)
        self._thread = threading.Thread(target=self._run, name="tracking", daemon=True)

    def __enter__(self) -> Tracking:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._trackers and not self._commits.empty():
            text = masked(f"writing the last trials to {', '.join(self._trackers)}")
            self._observer(Stage(text=text))
        self._commits.put(None)
        self._thread.join()
        self._report_failures()

    def __call__(self, event: Event) -> None:
        if isinstance(event, Ended) and event.run is not None:
            self._commits.put(event.run)
        self._observer(event)
        self._report_failures()

    def _report_failures(self) -> None:
        """Here, since observers get one event at a time."""
        while not self._failures.empty():
            self._observer(Note(text=self._failures.get()))

    def _turn_off(self, spec: str, error: Exception) -> None:
        self._trackers.pop(spec, None)
        why = summary_line(error)
        self._failures.put(f"--track {spec} is off: {why}; the results folder has all trials")

    def _run(self) -> None:
        while (run := self._commits.get()) is not None:
            for spec, each in [*self._trackers.items()]:
                try:
                    write(each, self._location, self._experiment, run)
                except Exception as error:
                    self._turn_off(spec, error)


def write(into: Tracker, location: Location, experiment: str, run: str) -> None:
    """Write the trials of a commit, but not those that a later commit has replaced and a compaction
    dropped since, nor evaluations that the tool has."""
    points = of_commit(location, "measurements", experiment, run).select(list(runs.READ))
    measured = runs.by_trial(points) if len(points) else {}
    rows = of_commit(location, "trials", experiment, run).select(list(_COLUMNS))
    for row in rows.to_pylist():
        began, evaluations = runs.evaluated(measured.get(row["trial"]), row["time"])
        trial = TrialRun(row=row, began=began)
        last = into.start(trial)
        for step, time, metrics in evaluations:
            if step > last:
                into.measure(step, time, metrics)
        into.end(trial, evaluations[-1][1] if evaluations else began)
