"""What can go wrong in a sweep's processes: trainers that fail at one trial, storage that fails.

A fault is named by the variable ``FAKE_FAULT``; the trials that it strikes stand in the file
``FAKE_CULPRITS``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from results.storage import local
from tests.experiments.fakes import FakeTraining


class Faulty(FakeTraining):
    """Strikes at the fourth evaluation of its trials: the fifth step."""

    def _raise(self, trials: Sequence[str]) -> None:
        culprits = Path(os.environ["FAKE_CULPRITS"]).read_text().split()
        for trial in trials:
            if trial in culprits:
                self.strike()

    def strike(self) -> None:
        raise NotImplementedError


class Raises(Faulty):
    def strike(self) -> None:
        raise ValueError("the seventh step is one too many")


class Sleeps(Faulty):
    def strike(self) -> None:
        while True:
            time.sleep(1000)


class StaysInC(Faulty):
    """A call that comes back to Python never, whatever the signal, and lets other threads run."""

    def strike(self) -> None:
        _deadlock(ctypes.CDLL(None))


class KeepsTheLock(Faulty):
    """Such a call that keeps the interpreter's lock: no other thread of the process runs."""

    def strike(self) -> None:
        _deadlock(ctypes.PyDLL(None))


def _deadlock(library: ctypes.CDLL) -> None:
    """Lock a mutex twice. Unlike a sleep, that does not end with a signal."""
    mutex = ctypes.create_string_buffer(64)  # zeros: unlocked
    for _ in range(2):
        library.pthread_mutex_lock(mutex)


class Dies(Faulty):
    """As where the kernel ends a process that takes too much memory."""

    def strike(self) -> None:
        with open(os.environ["FAKE_CULPRITS"] + ".deaths", "a") as stream:
            stream.write(f"{len(self.active)}\n")
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


class EatsMemory(Faulty):
    def strike(self) -> None:
        raise MemoryError


TRAINERS: dict[str, Callable[..., Any]] = {
    "": FakeTraining,
    "raises": Raises,
    "sleeps": Sleeps,
    "stays-in-c": StaysInC,
    "keeps-the-lock": KeepsTheLock,
    "dies": Dies,
    "eats-memory": EatsMemory,
    "storage-passing": FakeTraining,
    "storage-full": FakeTraining,
    "storage-read-only": FakeTraining,
    "clock": FakeTraining,
}


def break_storage(fault: str, below: str) -> None:
    """From the tenth file that this process writes on, writing fails: for ten seconds, or for good.
    Or the clock of the machine jumps by a day at each writing, to and fro."""
    numbers = {
        "storage-passing": errno.EIO,
        "storage-full": errno.ENOSPC,
        "storage-read-only": errno.EROFS,
    }
    real, real_time, written, since = local.write_file, time.time, [0], [0.0]

    def write(path: str, data: Any, root: str | None = None) -> None:
        written[0] += 1
        if fault in numbers and path.startswith(below) and written[0] > 10:
            since[0] = since[0] or time.monotonic()
            if fault != "storage-passing" or time.monotonic() - since[0] < 10:
                raise OSError(numbers[fault], os.strerror(numbers[fault]), path)
        real(path, data, root)

    def jumping() -> float:
        return real_time() + (86_400 if written[0] % 2 else -86_400)

    if fault in numbers or fault == "clock":
        local.write_file = write
    if fault == "clock":
        time.time = jumping
