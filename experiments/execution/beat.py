"""The beat of a pack: a thread beside its training.

It says at which step the pack is, asks what is assigned, keeps the claim, and ends a training that
makes no progress. Code that sleeps, waits or loops is interrupted by an exception inside of it;
code that never comes back to Python can only be left by ending the process. Where not even this
thread runs, the driver misses its questions, and ends the process.
"""

from __future__ import annotations

import ctypes
import signal
import statistics
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeVar

from experiments.execution.failures import is_users
from experiments.execution.ledger import Ledger
from experiments.scheduling.messages import Assignment, Channel, Failure
from results.errors import ResultsError

E = TypeVar("E")

_INTERVALS = 20
"""Median intervals between evaluations after which a pack without progress counts as hung."""
_GAP_SECONDS = 5.0
"""Most seconds that count between two beats: in longer ones the process did not run, since it was
suspended or its machine slept."""
_SIGNAL = signal.SIGURG
"""Interrupts what waits in the main thread. Nobody else's program uses it in Python; where no
handler is installed it does nothing."""


class Cut(BaseException):
    """Raised inside of training that does not come back by itself."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """The progress of a pack."""

    step: int = 0
    steps: int = 0
    """Steps of all its trials together, since this worker began."""
    values: Mapping[str, float | None] = field(default_factory=dict)
    """Last metric of each trial still training."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds between the tasks of a worker besides training."""

    ask: float = 0.5
    renew: float = 10.0
    commit: float = 30.0
    snapshot: float = 30.0
    hang: float = 600.0
    """Least seconds without progress after which a pack counts as hung."""
    silent: float = 120.0
    """Seconds without a question after which a worker's process is ended."""
    stop: float = 6.0
    """Seconds that training may go on without progress after a request to stop. Then it is cut
    off, and the pack's last snapshot is kept."""
    leave: float = 2.0
    """Seconds after an interruption that training has to come back, before its process ends."""
    collective: float = 600.0
    """Timeout of a collective operation of a group: longer than any evaluation for which a rank may
    have to wait."""


class Beat:
    """The beat of one pack. It counts the time without progress while the trials' own code runs:
    not while data is loaded, rows are written or a snapshot is saved."""

    def __init__(
        self,
        assignment: Assignment,
        ledger: Ledger,
        channel: Channel,
        pace: Pace,
        position: Callable[[], Position],
        leave: Callable[[], None],
    ) -> None:
        """
        Args:
            leave: called where training cannot be interrupted; it does not return.
        """
        self._ledger, self._channel, self._pace = ledger, channel, pace
        self._position, self._leave = position, leave
        self.assignment = assignment
        """As the driver last had it."""
        self.lost = False
        """Whether the claim is lost."""
        self.error: ResultsError | None = None
        """What is to be raised where the training is."""
        self.cuts = False
        """Whether training is interrupted."""
        self.failure: Failure | None = None
        """What it was in the middle of, if it hung."""
        self._reported = 0
        self._intervals: deque[float] = deque(maxlen=100)
        self._evaluated: float | None = None
        self._silent = self._waited = 0.0
        self._stage: Literal["set-up", "training", None] = None
        self._trains = threading.current_thread()
        self._closed = threading.Event()
        name = f"beat {assignment.pack.id}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to beat; a rank that does not write does not."""
        self.assignment = self._channel.ask(self.assignment)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def stop_requested(self) -> bool:
        return self.lost or self.error is not None or self.assignment.stop

    def report(self) -> Position:
        """Say where the training is, if it has moved."""
        at = self._position()
        if at.steps != self._reported:
            self._reported = at.steps
            self._channel.send(self.assignment.progress(at.step, at.steps, at.values.values()))
        return at

    # In the training thread

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Inside, the training of this thread can be interrupted."""
        in_main = self._trains is threading.main_thread()
        before = signal.signal(_SIGNAL, self._raise) if in_main else None
        try:
            yield
        finally:
            self._stage = None
            if in_main:
                signal.signal(_SIGNAL, before)
            elif self.cuts:  # one that is on its way is taken back
                _raise_in(self._trains, None)

    @contextmanager
    def setting_up(self) -> Iterator[None]:
        """Inside, training is prepared: there is no limit to it, but it can be stopped."""
        self._stage = "set-up"
        try:
            yield
        finally:
            self._stage = None

    def over(self, events: Iterator[Sequence[E]]) -> Iterator[Sequence[E]]:
        """The same, watched: each is progress, one that is not empty an evaluation."""
        while True:
            self._silent, self._stage = 0.0, "training"
            try:
                batch = next(events, None)
            finally:
                self._stage = None
            if batch is None:
                return
            if batch:
                now = time.monotonic()
                if self._evaluated is not None:
                    self._intervals.append(now - self._evaluated)
                self._evaluated = now
            yield batch

    def _raise(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._stage is not None and self.cuts:
            raise Cut

    # In its own thread

    def _run(self) -> None:
        renewed = last = time.monotonic()
        cut = 0.0
        while not self._closed.wait(self._pace.ask):
            self.assignment = self._channel.ask(self.assignment)
            seconds, last = time.monotonic() - last, time.monotonic()
            if self.count(seconds):
                self.interrupt()
                cut += seconds
                if cut > self._pace.leave + seconds and self._stage is not None:
                    self._leave()
            at = self.report()
            if time.monotonic() - renewed >= self._pace.renew:
                renewed = time.monotonic()
                progress = {trial: (at.step, value) for trial, value in at.values.items()}
                try:
                    held = self._ledger.renew(self.assignment.pack.id, progress)
                    self.lost = self.lost or not held
                except ResultsError as error:
                    self.error = error

    @property
    def limit(self) -> float:
        """Seconds without progress after which the pack counts as hung."""
        intervals = list(self._intervals)
        return max(self._pace.hang, _INTERVALS * statistics.median(intervals) if intervals else 0.0)

    def count(self, seconds: float) -> bool:
        """Count the seconds since the last beat; whether training is to be interrupted."""
        counted, stop = min(seconds, _GAP_SECONDS), self.stop_requested()
        self._waited = self._waited + counted if stop else 0.0
        if self._stage is None:
            return False
        self._silent += counted
        if not self.cuts and stop and min(self._waited, self._silent) >= self._pace.stop:
            self.cuts = True
        elif not self.cuts and self._stage == "training" and self._silent >= self.limit:
            self.cuts, self.failure = True, self._describe()
        return self.cuts

    def interrupt(self) -> None:
        """Raise ``Cut`` in the training thread, if it comes back to Python."""
        if self._stage is None:
            return
        if self._trains is not threading.main_thread():
            _raise_in(self._trains, Cut)
        elif self._trains.ident is not None:
            signal.pthread_kill(self._trains.ident, _SIGNAL)

    def _describe(self) -> Failure:
        """The failure of a pack that hangs, with the place where it does."""
        message = f"hung: no progress for {self._silent:.0f} s"
        stack = traceback.extract_stack(sys._current_frames().get(self._trains.ident or 0))
        first = next((i for i, frame in enumerate(stack) if is_users(frame.filename)), 0)
        place = stack[-1]
        for frame in stack[first:]:
            if is_users(frame.filename):
                place = frame
        where = f"{Path(place.filename).name}:{place.lineno}"
        lines = "".join(traceback.format_list(stack[first:]))
        return Failure(
            message=f"{message}, at {where}",
            hint="the worker's stack is in the trial's error; a trial that only needs longer shows "
            "progress at its evaluations",
            traceback=f"Stack of the worker (most recent call last):\n{lines}{message}\n",
            cause="hung",
        )


def _raise_in(thread: threading.Thread, error: type[BaseException] | None) -> None:
    """Raise an exception in another thread at its next line of Python; ``None``: do not."""
    if thread.ident is not None:
        value: Any = ctypes.py_object() if error is None else ctypes.py_object(error)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), value)
