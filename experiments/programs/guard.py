"""Starts a program and ends all of its processes. It needs the standard library alone.

``python -I -S guard.py STATUS_FD GRACE COMMAND …`` starts the command in a session of its own, and
waits. It ends all processes that come of the command once

- a line ``end SECONDS`` comes on standard input: SIGTERM, and SIGKILL after so many seconds;
- standard input closes: the worker has died; as ``end GRACE``;
- the command ends by itself: what it has left running gets SIGTERM, and SIGKILL after 2 seconds.

Then it writes how the command ended to STATUS_FD, as JSON (``exit``, ``signal`` or ``error``), and
ends. On Linux it adopts whoever loses a parent, so that a process which has left the group is found
too, and the command dies with it. Elsewhere processes that leave the group are not found.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from types import FrameType

_SUBREAPER, _DEATH_SIGNAL = 36, 1
"""Options of Linux's ``prctl``."""
_AFTER_EXIT = 2.0
_POLL_SECONDS = 0.05


class _Guard:
    def __init__(self, status: int, grace: float, command: list[str]) -> None:
        self.status, self.grace, self.command = status, grace, command
        self.code: int | None = None
        """As ``subprocess`` has it: negative for a signal."""
        self.terminated = False
        self.kill_at: float | None = None
        self.closed = False
        self.group_alone = False
        """Whether the system lists no processes: the program's group is all that is known."""

    def run(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_term)
        _prctl(_SUBREAPER)
        try:
            child = subprocess.Popen(
                self.command,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                preexec_fn=_prepare,
            )
        except OSError as error:
            self._say({"error": f"{error.strerror or error}: {error.filename or self.command[0]}"})
            return
        self.child = child.pid
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):  # the program alone holds them, so that its end is seen
            os.dup2(nothing, stream)
        while True:
            self._reap()
            left = self._left()
            if self.code is not None and not left:
                break
            if self.code is not None and self.kill_at is None:
                self._end(_AFTER_EXIT)
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self._send(signal.SIGKILL)
            self._listen()
        self._say({"signal": -self.code} if self.code < 0 else {"exit": self.code})

    def _listen(self) -> None:
        """Wait a moment for what the worker says."""
        if self.closed:
            time.sleep(_POLL_SECONDS)
            return
        if not select.select([0], [], [], _POLL_SECONDS)[0]:
            return
        text = os.read(0, 4096).decode("ascii", "replace")
        self.closed = not text
        for line in text.splitlines() or ([f"end {self.grace}"] if self.closed else []):
            part, _, seconds = line.partition(" ")
            if part == "end":
                self._end(float(seconds))

    def _end(self, seconds: float) -> None:
        """SIGTERM now, unless it was sent before; SIGKILL after ``seconds``, or sooner."""
        until = time.monotonic() + seconds
        self.kill_at = until if self.kill_at is None else min(until, self.kill_at)
        if not self.terminated:
            self.terminated = True
            self._send(signal.SIGTERM)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._end(self.grace)

    def _send(self, number: signal.Signals) -> None:
        """Each process gets it once."""
        for pid in self._left():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if self.group_alone and self.code is None:
            os.killpg(self.child, number)

    def _left(self) -> set[int]:
        """Numbers of the processes that come of the program, those that run."""
        parents = _parents()
        if parents is None:
            self.group_alone = True
            return set()
        left, more = set[int](), {os.getpid()}
        while more:
            more = {pid for pid, parent in parents.items() if parent in more} - left
            left |= more
        return left

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.child:
                self.code = os.waitstatus_to_exitcode(status)

    def _say(self, how: dict[str, int | str]) -> None:
        with os.fdopen(self.status, "w") as stream:
            json.dump(how, stream)


def _parents() -> dict[int, int] | None:
    """The parent of each process that runs; ``None`` where the system does not say."""
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return None
    parents = {}
    for name in names:
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stream:
                state, parent = stream.read().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state not in "ZX":
            parents[int(name)] = int(parent)
    return parents or None


def _prepare() -> None:
    """In the program's process, before it begins: it dies with the guard."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _prctl(_DEATH_SIGNAL, signal.SIGKILL)


def _prctl(option: int, value: int = 1) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    _Guard(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]).run()
