"""Starts a program, keeps its output, and ends all of its processes. It needs the standard library
alone.

``python -I -S guard.py STATUS_FD GRACE FOLDER REPORTS STREAMS PATTERN COMMAND …`` starts the
command in a session of its own, and waits. What the command writes is kept in FOLDER, of each
stream at most the last 8 MiB; lines of STREAMS (``stdout,stderr``) in which PATTERN is found are
appended to REPORTS. So nothing is lost with the worker: the program writes on, and its last words
are kept.

It ends all processes that come of the command once

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
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import FileIO
from types import FrameType

_SUBREAPER, _DEATH_SIGNAL = 36, 1
"""Options of Linux's ``prctl``."""
_AFTER_EXIT = 2.0
_POLL_SECONDS = 0.05
_LARGEST_LOG = 4 * 2**20
_LONGEST_LINE = 1_000_000
"""Bytes; a longer line is no report."""
_PIECE = 2**16


class Lines:
    """Puts pieces of output together to lines."""

    def __init__(self) -> None:
        self._rest, self._too_long = b"", False

    def of(self, piece: bytes) -> Iterator[bytes]:
        """The lines that end in ``piece``, the next of the stream; without those too long. A
        carriage return ends one too: a progress bar writes each of its states over the last."""
        *ended, rest = (self._rest + piece.replace(b"\r", b"\n")).split(b"\n")
        for line in ended:
            if not self._too_long:
                yield line
            self._too_long = False
        if len(rest) > _LONGEST_LINE:
            rest, self._too_long = b"", True
        self._rest = b"" if self._too_long else rest

    def last(self) -> Iterator[bytes]:
        """What is left when the stream has ended: half a line is no report, but a whole one may
        lack its end."""
        if self._rest and not self._too_long:
            yield self._rest
        self._rest = b""


class _Log:
    """A stream of the program: a file that keeps the last of what it writes, beside it the part
    before, and what it may report."""

    def __init__(self, path: str, reports: str, pattern: str) -> None:
        """``pattern``: of the lines that may be reports; if it is empty, none is."""
        self._path, self._reports, self._lines = path, reports, Lines()
        self._pattern = re.compile(pattern.encode()) if pattern else None
        self._stream = self._opened()

    def write(self, piece: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk ends no trial
            if self._stream.tell() + len(piece) > _LARGEST_LOG:
                self._stream.close()
                os.replace(self._path, f"{self._path}.1")
                self._stream = self._opened()
            self._stream.write(piece)
        self._report(self._lines.of(piece))

    def close(self) -> None:
        self._report(self._lines.last())
        self._stream.close()

    def _opened(self) -> FileIO:
        return FileIO(self._path, "ab")

    def _report(self, lines: Iterator[bytes]) -> None:
        if self._pattern is None:
            return
        said = [line for line in lines if self._pattern.search(line)]
        if said:
            with open(self._reports, "ab", buffering=0) as stream:
                stream.write(b"".join(line + b"\n" for line in said))


class _Guard:
    def __init__(self, status: str, grace: str, folder: str, *more: str) -> None:
        """The arguments of the command line."""
        reports, streams, pattern, *self.command = more
        self.status, self.grace = int(status), float(grace)
        self.logs = {
            name: _Log(
                os.path.join(folder, f"{name}.log"),
                reports,
                pattern if name in streams.split(",") else "",
            )
            for name in ("stdout", "stderr")
        }
        self.streams: dict[int, _Log] = {}
        """The pipes of the program that may still have something."""
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
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                preexec_fn=_prepare,
            )
        except OSError as error:
            self._say({"error": f"{error.strerror or error}: {error.filename or self.command[0]}"})
            return
        self.child = child.pid
        for stream, log in ((child.stdout, "stdout"), (child.stderr, "stderr")):
            assert stream is not None
            self.streams[stream.fileno()] = self.logs[log]
        next_check = 0.0
        while True:
            heard = self._listen()
            if time.monotonic() < next_check:
                continue
            next_check = time.monotonic() + _POLL_SECONDS
            self._reap()
            left = self._left()
            if self.code is not None and not left and not heard:
                break
            if self.code is not None and self.kill_at is None:
                self._end(_AFTER_EXIT)
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self._send(signal.SIGKILL)
        for each in self.logs.values():
            each.close()
        self._say({"signal": -self.code} if self.code < 0 else {"exit": self.code})

    def _listen(self) -> bool:
        """Wait a moment for what the program or the worker says; whether either did."""
        wanted = [*self.streams, *([] if self.closed else [0])]
        ready = select.select(wanted, [], [], _POLL_SECONDS)[0] if wanted else []
        if not wanted:
            time.sleep(_POLL_SECONDS)
        for stream in ready:
            if stream == 0:
                self._obey()
            elif piece := os.read(stream, _PIECE):
                self.streams[stream].write(piece)
            else:
                del self.streams[stream]
        return bool(ready)

    def _obey(self) -> None:
        """Take in what the worker says."""
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
    _Guard(*sys.argv[1:]).run()
