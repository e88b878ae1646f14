"""A program that runs: its process group, what it reports, its output, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from experiments.programs.metrics import Metrics
from experiments.programs.reports import Report
from results.run_state import processes

GRACE_SECONDS = 30.0
"""Seconds from SIGTERM to SIGKILL: a program may save a checkpoint meanwhile."""
REPORTS_VARIABLE, STOP_VARIABLE = "BATCHSCALE_REPORTS", "BATCHSCALE_STOP_FILE"
"""Environment variables of a program: the file to which ``batchscale.report`` appends, and one that
is there once the program is to stop."""
REPORTS, RUNNING = "reports.jsonl", "running.json"
"""In a trial's folder: the file of the first variable, and the identity of the last guard."""
HANG_SECONDS, HANG_INTERVALS = 600.0, 20
"""How long a program that has reported is silent at least before it hangs, in seconds and in its
longest intervals between reports of different steps."""
_GUARD = Path(__file__).with_name("guard.py")
_STDERR_LINES, _STDERR_WIDTH = 20, 500
_KILLED_SECONDS = 10.0
_POLL_SECONDS = 0.05


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
        metrics: Metrics | None = None,
        from_now: bool = False,
    ) -> None:
        """Start it.

        Args:
            folder: of the trial, which exists: its output is kept there, in ``stdout.log`` and
                ``stderr.log``, of each at most the last 8 MiB.
            work: the folder that it runs in; the present one unless given.
            environment: variables besides those of this process.
            metrics: where it reports; ``None``: by JSON objects on standard output. What it says
                by ``batchscale.report`` is read in any case.
            from_now: pass over what its files have reported before.
        """
        folder = folder.absolute()
        reports, self._stop_file = folder / REPORTS, folder / "stop"
        for file in (reports, self._stop_file):  # of an earlier run
            file.unlink(missing_ok=True)
        metrics = metrics or Metrics()
        self._sources = metrics.sources(reports, folder)
        for source in self._sources if from_now else ():
            deque(source.more(), maxlen=0)
        self._errors = folder / "stderr.log"
        self._errors_before = self._errors.stat().st_size if self._errors.exists() else 0
        self.ended: Ended | None = None
        """How it ended, once none of its processes is left."""
        self._heard: float | None = None
        self._longest = 0.0
        self._last_step = -1
        status, written = os.pipe()
        self._status = os.fdopen(status)
        streams = "stdout,stderr" if metrics.both_streams else "stdout"
        given = [str(written), str(GRACE_SECONDS), str(folder), str(reports), streams]
        given.append(metrics.printed)
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), *given, *command],
                cwd=work,
                env={
                    **os.environ,
                    "PYTHONUNBUFFERED": "1",
                    REPORTS_VARIABLE: str(reports),
                    STOP_VARIABLE: str(self._stop_file),
                    **(environment or {}),
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[written],
                start_new_session=True,
            )
        finally:
            os.close(written)
        running = json.dumps(processes.identify(self._guard.pid))
        (folder / RUNNING).write_text(running, encoding="utf-8")

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
            reports = [*chain.from_iterable(each.more(ended=ended) for each in self._sources)]
            if reports or self.ended is not None or time.monotonic() >= until:
                if reports:
                    last_step = max(report.step for report in reports)
                    if last_step > self._last_step:  # others may belong to one evaluation
                        self._longest = max(self._longest, self.silent)
                        self._last_step = last_step
                    self._heard = time.monotonic()
                return reports
            time.sleep(_POLL_SECONDS)

    @property
    def silent(self) -> float:
        """Seconds since its last report; 0 before its first."""
        return 0.0 if self._heard is None else time.monotonic() - self._heard

    @property
    def hangs(self) -> bool:
        """Whether it has been silent for much longer than ever before; never before a later step
        than that of its first report: how often it reports is not known then."""
        if self._longest == 0.0:
            return False
        return self.silent > max(HANG_SECONDS, HANG_INTERVALS * self._longest)

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
        for stream in (self._guard.stdin, self._status):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _finish(self) -> None:
        text = self._status.read() if self._guard.poll() is not None else ""
        last = [line[:_STDERR_WIDTH] for line in self._last_errors() if line.strip()]
        how = json.loads(text) if text else {"signal": int(signal.SIGKILL)}  # the guard was killed
        self.ended = Ended(**how, stderr=tuple(last))

    def _last_errors(self) -> list[str]:
        """The last lines of standard error since its start, of as much as they may have."""
        try:
            with self._errors.open("rb") as stream:
                size = stream.seek(0, 2)
                before = self._errors_before if self._errors_before <= size else 0
                stream.seek(max(before, size - _STDERR_LINES * _STDERR_WIDTH))
                return stream.read().decode("utf-8", "replace").splitlines()[-_STDERR_LINES:]
        except OSError:
            return []


def runs_in(folder: Path) -> bool:
    """Whether a program that a dead worker has started in the folder of its trial still runs, as
    far as this machine knows: its guard ends it within ``GRACE_SECONDS``."""
    try:
        running = json.loads((folder / RUNNING).read_text(encoding="utf-8"))
        return processes.alive(running) is True
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
