"""Why a sweep ends early: Ctrl-C, SIGTERM, a terminal that closes, or the end of its time."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Literal, Self

Reason = Literal["signal", "time"]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A sweep was interrupted and has ended cleanly: finished trials are recorded, unfinished ones
    are kept, and the same command continues them. ``summary`` says what it did."""

    def __init__(self, text: str, summary: Any = None) -> None:
        super().__init__(text)
        self.summary = summary


class Stop:
    """Whether to end, and why. As a context manager it listens to SIGINT, SIGTERM, and SIGHUP
    unless that was ignored before, as by nohup.

    The first signal asks; the second raises KeyboardInterrupt on the spot. Signals reach Python's
    main thread alone: elsewhere only ``seconds`` counts. Other threads see a signal even
    while the main thread is in code that does not come back to Python.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds
        self._reason: Reason | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._condition: Callable[[], bool] | None = None
        self._received_before = False
        self._wakeup: tuple[socket.socket, socket.socket] | None = None

    @property
    def reason(self) -> Reason | None:
        """Why to end, ``None`` to go on."""
        if self._reason is None and self._signalled():
            self._reason = "signal"
        if self._reason is None and self._until is not None and time.monotonic() >= self._until:
            self._reason = "time"
        return self._reason

    @property
    def left(self) -> float | None:
        """Seconds of its time that are left, ``None`` where there is no limit."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def __bool__(self) -> bool:
        return self.reason is not None or bool(self._condition and self._condition())

    @contextmanager
    def when(self, condition: Callable[[], bool]) -> Iterator[Self]:
        """Inside, also ask to end when ``condition()`` is true."""
        self._condition = condition
        try:
            yield self
        finally:
            self._condition = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                ignored = signal.getsignal(number) is signal.SIG_IGN
                if not (ignored and number == signal.SIGHUP):
                    self._before[number] = signal.signal(number, self._receive)
            self._listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
        if self._wakeup is not None:
            signal.set_wakeup_fd(-1)
            for end in self._wakeup:
                end.close()
            self._wakeup = None

    def _listen(self) -> None:
        """Have the system's own handler write each signal's number where any thread can read it."""
        pair = socket.socketpair()
        for end in pair:
            end.setblocking(False)
        before = signal.set_wakeup_fd(pair[1].fileno(), warn_on_full_buffer=False)
        if before == -1:
            self._wakeup = pair
            return
        signal.set_wakeup_fd(before)  # an event loop's
        for end in pair:
            end.close()

    def _signalled(self) -> bool:
        if self._wakeup is None:
            return False
        try:
            numbers = self._wakeup[0].recv(4096)
        except OSError:  # nothing there
            return False
        return any(number in self._before for number in numbers)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._received_before:
            raise KeyboardInterrupt
        self._received_before, self._reason = True, "signal"
