"""Runs in a folder for TensorBoard, as ``batchscale export tensorboard`` writes them."""

from __future__ import annotations

from collections.abc import Mapping

from batchscale.tracking.tracker import TrialRun
from results.exports import OutputFolder
from results.exports import tensorboard as runs
from results.exports.support import tensorboard_events as events


class Runs:
    """A run is written whole at its end: again, where its trial has gone on.

    Raises:
        ResultsError: the folder is a file, a URI, or holds files of others.
    """

    def __init__(self, folder: str) -> None:
        self._folder = OutputFolder(folder, "tensorboard")
        self._folder.mark()
        self._evaluations: list[runs.Evaluation] = []

    def start(self, run: TrialRun) -> int:  # noqa: ARG002
        self._evaluations = []
        return -1

    def measure(self, step: int, time: float, metrics: Mapping[str, float]) -> None:
        self._evaluations.append((step, time, dict(metrics)))

    def end(self, run: TrialRun, time: float) -> None:  # noqa: ARG002
        written = runs.events_of(run.row, run.began, self._evaluations)
        events.write(self._folder.path / run.name, run.began, written)
