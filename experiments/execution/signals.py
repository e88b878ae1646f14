"""Why a sweep ends early: Ctrl-C, SIGTERM, or the end of its time."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Literal, Self

Reason = Literal["signal", "time"]


class Interrupted(KeyboardInterrupt):
    """A sweep was interrupted and has ended cleanly: finished trials are recorded, unfinished ones
    are kept, and the same command continues them. ``summary`` says what it did."""

    def __init__(self, text: str, summary: Any = None) -> None:
        super().__init__(text)
        self.summary = summary


class Stop:
    """Whether to end, and why. As a context manager it listens to SIGINT and SIGTERM.

    The first signal asks; the second raises KeyboardInterrupt on the spot. Signals reach Python's
    main thread alone: elsewhere only ``seconds`` and ``ask`` count.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds
        self._reason: Reason | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._condition: Callable[[], bool] | None = None

    @property
    def reason(self) -> Reason | None:
        """Why to end, ``None`` to go on."""
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

    def ask(self, reason: Reason) -> None:
        """Ask the sweep to end."""
        self._reason = self._reason or reason

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._receive)
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

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._reason == "signal":
            raise KeyboardInterrupt
        self._reason = "signal"
