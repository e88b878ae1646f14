"""Notices a pack that makes no progress, and interrupts its training.

Code that sleeps, waits or loops is interrupted by an exception inside of it. Code that never comes
back to Python can only be left by ending the process.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal, TypeVar

from experiments.execution.failures import is_users
from experiments.scheduling.messages import Failure

Reason = Literal["hung", "stop"]
E = TypeVar("E")

_INTERVALS = 20
"""Median intervals between evaluations after which a pack without progress counts as hung."""
_GAP_SECONDS = 5.0
"""Most seconds that count between two heartbeats: in longer ones the process did not run, since it
was suspended or its machine slept."""
_SIGNAL = getattr(signal, "SIGURG", None)
"""Interrupts what waits in the main thread. Nobody else's program uses it in Python; where no
handler is installed it does nothing."""


class Cut(BaseException):
    """Raised inside of training that does not come back by itself."""


class Watchdog:
    """Counts the time in which a pack makes no progress, heartbeat by heartbeat.

    It counts while the trials' own code runs: not while data is loaded, rows are written or a
    snapshot is saved. A clock that is set, a suspended process and a machine that sleeps do not
    count.
    """

    def __init__(self, hang: float, stop: float) -> None:
        """
        Args:
            hang: least seconds without progress after which a pack counts as hung.
            stop: seconds that training may go on without progress once it was asked to stop.
        """
        self._hang, self._stop = hang, stop
        self._intervals: deque[float] = deque(maxlen=100)
        self._evaluated: float | None = None
        self._silent = self._waited = 0.0
        self._stage: Literal["set-up", "training", None] = None
        self._thread = threading.current_thread()
        self.reason: Reason | None = None
        """Why training is interrupted."""
        self.failure: Failure | None = None
        """What it was in the middle of, if it hung."""
        self._before: Any = None

    # In the training thread

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside, the training of this thread can be interrupted."""
        in_main = self._thread is threading.main_thread() and _SIGNAL is not None
        before = signal.signal(_SIGNAL, self._raise) if in_main and _SIGNAL is not None else None
        try:
            yield
        finally:
            self._stage = None
            if in_main and _SIGNAL is not None:
                signal.signal(_SIGNAL, before)
            elif self.reason is not None:  # one that is on its way is taken back
                _raise_in(self._thread, None)

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
        if self._stage is not None and self.reason is not None:
            raise Cut

    # In the heartbeat's thread

    @property
    def limit(self) -> float:
        """Seconds without progress after which the pack counts as hung."""
        intervals = list(self._intervals)
        return max(self._hang, _INTERVALS * statistics.median(intervals) if intervals else 0.0)

    def beat(self, seconds: float, *, stop: bool) -> bool:
        """Count the seconds since the last beat; whether training is to be interrupted."""
        counted = min(seconds, _GAP_SECONDS)
        self._waited = self._waited + counted if stop else 0.0
        if self._stage is None:
            return False
        self._silent += counted
        if self.reason is None and stop and min(self._waited, self._silent) >= self._stop:
            self.reason = "stop"
        elif self.reason is None and self._stage == "training" and self._silent >= self.limit:
            self.reason = "hung"
            self.failure = self._describe()
        return self.reason is not None

    def interrupt(self) -> None:
        """Raise ``Cut`` in the training thread, if it comes back to Python."""
        if not self.inside:
            return
        if self._thread is not threading.main_thread() or _SIGNAL is None:
            _raise_in(self._thread, Cut)
        elif self._thread.ident is not None:
            signal.pthread_kill(self._thread.ident, _SIGNAL)

    @property
    def inside(self) -> bool:
        """Whether the trials' own code runs."""
        return self._stage is not None

    def _describe(self) -> Failure:
        """The failure of a pack that hangs, with the place where it does."""
        message = f"hung: no progress for {self._silent:.0f} s"
        stack = traceback.extract_stack(sys._current_frames().get(self._thread.ident or 0))
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
            clear=False,
            cause="hung",
        )


def _raise_in(thread: threading.Thread, error: type[BaseException] | None) -> None:
    """Raise an exception in another thread at its next line of Python; ``None``: do not."""
    if thread.ident is not None:
        value = ctypes.py_object() if error is None else ctypes.py_object(error)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), value)
