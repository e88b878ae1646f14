"""The events of a sweep as JSON lines on stderr, in the place of the display: stdout holds the
result alone.

docs/running.md lists the fields. They are named here one by one, so that they stay when the
messages of a sweep change.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from experiments.scheduling import messages
from results.errors import line

_SECONDS = 10.0
"""Seconds between two lines of a pack's progress, and of the time left; a display's too."""
_STUDY = ("study", "label", "batch_size", "trials", "done", "reached", "infeasible", "dominated")
_BEGUN = ("pack", "study", "trials", "engine", "round", "step")
_PROGRESS = ("pack", "study", "step", "steps", "active", "metric")
_ENDED = ("trial", "status", "stop_reason", "steps_run", "steps_to_target", "train_seconds")


class JsonLog:
    """``sweep(…, observer=JsonLog())``: an object a line, with ``time`` (UTC, ISO 8601), ``event``
    and its fields. A number that is not finite is null."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._printed: dict[str, float] = {}
        """When the last progress of each pack was, and under "" the time left."""
        self._lock = threading.Lock()

    def __call__(self, event: messages.Event) -> None:
        with self._lock:
            for name, fields in self._lines(event):
                now = datetime.now(UTC).isoformat(timespec="milliseconds")
                row = {"time": now, "event": name, **{k: _plain(v) for k, v in fields.items()}}
                print(json.dumps(row, allow_nan=False), file=sys.stderr, flush=True)

    def _lines(self, event: messages.Event) -> Iterator[tuple[str, Mapping[str, Any]]]:
        match event:
            case messages.Stage():
                yield "stage", _fields(event, "text")
            case messages.Note():
                yield "note", _fields(event, "text", "pack")
            case messages.StudyPlanned():
                yield "study", _fields(event, *_STUDY, "budget_steps")
            case messages.Begun():
                yield "begun", _fields(event, *_BEGUN)
            case messages.Progress() if self._due(event.pack):
                yield "progress", _fields(event, *_PROGRESS)
            case messages.Ended(run=None):  # they come again when their rows are safe
                for outcome in event.outcomes:
                    resumed = {"resumed": outcome.trial in event.resumed}
                    fields = _fields(outcome, *_ENDED)
                    yield "ended", {**_fields(event, "pack", "study"), **fields, **resumed}
            case messages.Over():
                error = event.failure and event.failure.message
                yield "over", {**_fields(event, "pack", "study", "end", "seconds"), "error": error}
            case messages.Round():
                yield "round", _fields(event, "round", "trials", "reached", "studies")
            case messages.TimeLeft() if self._due(""):
                yield "time_left", _fields(event, "seconds")
            case _:
                pass

    def _due(self, what: str) -> bool:
        now = self._clock()
        due = now - self._printed.get(what, -math.inf) >= _SECONDS
        if due:
            self._printed[what] = now
        return due


def _fields(source: object, *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return line(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
