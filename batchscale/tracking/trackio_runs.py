"""Runs of Trackio, by its SDK: in its folder here (``TRACKIO_DIR``), or in the Space or server that
``TRACKIO_SPACE_ID`` or ``TRACKIO_SERVER_URL`` names."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from batchscale.tracking.tracker import TrialRun


class _Others(io.TextIOBase):
    """Stdout for every thread but this one."""

    def __init__(self) -> None:
        self._out, self._thread = sys.stdout, threading.get_ident()

    def write(self, text: str) -> int:
        dropped = threading.get_ident() == self._thread
        return len(text) if dropped else self._out.write(text)


class Runs:
    """A run is found again by its name, which holds the trial's id.

    Trackio prints some lines for each run, to stdout: they are dropped.
    """

    def __init__(self, project: str) -> None:
        import trackio

        self._trackio: Any = trackio
        self._project = project
        self._run: Any = None
        self._step = 0
        """The last that was measured."""

    def start(self, run: TrialRun) -> int:
        with redirect_stdout(_Others()):
            self._run = self._trackio.init(
                project=self._project,
                name=run.name,
                group=run.row["study"],
                config=run.config,
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        # It has no public name: the step of the next log without one.
        last = int(self._run._next_step) - 1
        self._step = max(last, 0)
        return last

    def measure(self, step: int, time: float, metrics: Mapping[str, float]) -> None:  # noqa: ARG002
        self._run.log(dict(metrics), step=step)
        self._step = step

    def end(self, run: TrialRun, time: float) -> None:  # noqa: ARG002
        self._run.log(run.outcome, step=self._step)
        with redirect_stdout(_Others()):
            self._run.finish()
