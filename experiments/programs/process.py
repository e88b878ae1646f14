"""A program that runs: its process group, what it reports, its output, and its end."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from experiments.errors import ExperimentError
from experiments.programs.reports import Followed, Lines, Report
from results.run_state import processes

GRACE_SECONDS = 30.0
"""Seconds from SIGTERM to SIGKILL: a program may save a checkpoint meanwhile."""
REPORTS_VARIABLE, STOP_VARIABLE = "BATCHSCALE_REPORTS", "BATCHSCALE_STOP_FILE"
"""Environment variables of a program: the file to which ``batchscale.report`` appends, and one that
is there once the program is to stop."""
REPORTS, RUNNING = "reports.jsonl", "running.json"
"""In a trial's folder: the file of the first variable, and the identity of the last guard."""
_GUARD = Path(__file__).with_name("guard.py")
_LARGEST_LOG = 4 * 2**20
_STDERR_LINES, _STDERR_WIDTH = 20, 500
_KILLED_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a program ended."""

    exit: int | None = None
    """Its exit status, where it ended by itself."""
    signal: int | None = None
    """The signal that ended it."""
    error: str | None = None
    """Why it could not be started."""
    stderr: Sequence[str] = field(default=())
    """Its last lines of standard error."""

    def __str__(self) -> str:
        if self.error is not None:
            return f"it could not be started: {self.error}"
        if self.signal is None:
            return f"exit status {self.exit}"
        with suppress(ValueError):
            return f"signal {self.signal} ({signal.Signals(self.signal).name})"
        return f"signal {self.signal}"


class Process:
    """A program from its start to the end of its last process. ``close`` it in any case."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        work: str | Path | None = None,
        environment: Mapping[str, str] | None = None,
        metrics: Path | None = None,
    ) -> None:
        """Start it.

        Args:
            folder: of the trial, which exists: its output is kept there, in ``stdout.log`` and
                ``stderr.log``, of each at most the last 8 MiB.
            work: the folder that it runs in; the present one unless given.
            environment: variables besides those of this process.
            metrics: a file that it appends its reports to; ``None``: they are on standard output.
                What it says by ``batchscale.report`` is read in any case.
        """
        self._reports: queue.Queue[Report | ExperimentError] = queue.Queue()
        reports, self._stop_file = folder / REPORTS, folder / "stop"
        for file in (reports, self._stop_file):  # of an earlier run
            file.unlink(missing_ok=True)
        self._of_output = metrics is None
        self._followed = [Followed(file) for file in (reports, metrics) if file is not None]
        self.ended: Ended | None = None
        """How it ended, once none of its processes is left."""
        status, written = os.pipe()
        self._status = os.fdopen(status)
        try:
            self._guard = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    str(_GUARD),
                    str(written),
                    str(GRACE_SECONDS),
                    *command,
                ],
                cwd=work,
                env={
                    **os.environ,
                    "PYTHONUNBUFFERED": "1",
                    REPORTS_VARIABLE: str(reports),
                    STOP_VARIABLE: str(self._stop_file),
                    **(environment or {}),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[written],
                start_new_session=True,
            )
        finally:
            os.close(written)
        running = json.dumps(processes.identify(self._guard.pid))
        (folder / RUNNING).write_text(running, encoding="utf-8")
        self._stderr: deque[bytes] = deque(maxlen=_STDERR_LINES)
        assert self._guard.stdout is not None
        assert self._guard.stderr is not None
        self._threads = [
            threading.Thread(target=self._read, args=(stream, folder / name, out), daemon=True)
            for stream, name, out in (
                (self._guard.stdout, "stdout.log", True),
                (self._guard.stderr, "stderr.log", False),
            )
        ]
        for thread in self._threads:
            thread.start()

    def reports(self, seconds: float) -> list[Report]:
        """What it has reported since the last call, in its order. Waits for something at most so
        long; what came before its end is there together with ``ended``.

        Raises:
            ExperimentError: a report cannot be read.
        """
        until = time.monotonic() + seconds
        while True:
            ended = self.ended is None and self._guard.poll() is not None
            if ended:
                self._finish()
            for followed in self._followed:
                for line in followed.more(ended=ended):
                    self._put(line)
            waits = self.ended is None and time.monotonic() < until
            reports = self._taken(0.05 if waits else 0.0)
            if reports or not waits:
                return reports

    def end(self, grace: float | None = None) -> None:
        """Ask it to end: SIGTERM to all its processes, SIGKILL after ``grace`` seconds, which are
        ``GRACE_SECONDS`` unless given."""
        grace = GRACE_SECONDS if grace is None else grace
        self._stop_file.touch()
        assert self._guard.stdin is not None
        with suppress(OSError):  # it has ended
            self._guard.stdin.write(f"end {grace}\n".encode())
            self._guard.stdin.flush()

    def close(self) -> None:
        """End it now, if it runs: SIGKILL. None of its processes is left."""
        if self.ended is None:
            self.end(0.0)
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(_KILLED_SECONDS)
            self._finish()
        with suppress(OSError):
            self._stop_file.unlink(missing_ok=True)
        for stream in (self._guard.stdin, self._guard.stdout, self._guard.stderr, self._status):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _finish(self) -> None:
        for thread in self._threads:  # its pipes are closed: nothing is left that could write
            thread.join(_KILLED_SECONDS)
        text = self._status.read() if self._guard.poll() is not None else ""
        lines = b"".join(self._stderr).decode("utf-8", "replace").splitlines()
        last = [line[:_STDERR_WIDTH] for line in lines[-_STDERR_LINES:] if line.strip()]
        how = json.loads(text) if text else {"signal": int(signal.SIGKILL)}  # the guard was killed
        self.ended = Ended(**how, stderr=tuple(last))

    def _taken(self, seconds: float) -> list[Report]:
        taken: list[Report] = []
        with suppress(queue.Empty):
            while True:
                wait = seconds if not taken else 0.0
                each = self._reports.get(timeout=wait) if wait else self._reports.get_nowait()
                if isinstance(each, ExperimentError):
                    raise each
                taken.append(each)
        return taken

    def _put(self, line: bytes) -> None:
        try:
            report = Report.of_line(line)
        except ExperimentError as error:
            self._reports.put(error)
        else:
            if report is not None:
                self._reports.put(report)

    def _read(self, stream: IO[bytes], path: Path, is_stdout: bool) -> None:
        """In a thread: keep a stream, and take in what is reported on it."""
        lines, log = Lines(), _Log(path)
        reports = is_stdout and self._of_output
        descriptor = stream.fileno()
        while piece := os.read(descriptor, 1 << 16):
            log.write(piece)
            if not is_stdout:
                self._stderr.append(piece[-_STDERR_LINES * _STDERR_WIDTH :])
            if reports:
                for line in lines.of(piece):
                    self._put(line)
        for line in lines.last() if reports else ():
            self._put(line)
        log.close()


def runs_in(folder: Path) -> bool:
    """Whether a program that a dead worker has started in the folder of its trial still runs, as
    far as this machine knows: its guard ends it within ``GRACE_SECONDS``."""
    try:
        running = json.loads((folder / RUNNING).read_text(encoding="utf-8"))
        return processes.alive(running) is True
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


class _Log:
    """A file that keeps the last of what is written to it, and beside it the part before."""

    def __init__(self, path: Path) -> None:
        self._path, self._stream = path, path.open("ab")

    def write(self, piece: bytes) -> None:
        with suppress(OSError):  # a full disk ends no trial
            if self._stream.tell() + len(piece) > _LARGEST_LOG:
                self._stream.close()
                self._path.replace(self._path.with_suffix(".log.1"))
                self._stream = self._path.open("ab")
            self._stream.write(piece)
            self._stream.flush()

    def close(self) -> None:
        self._stream.close()
