"""The identity of a process, so that it is not confused with another with the same number.

A process is identified by its machine, its number and its start time. The machine is a running
kernel and a process namespace: two containers of one host do not see each other's processes. Where
the system does not report it (no ``/proc``), the start time is unknown and only a missing number
proves that the process has ended.

Anybody may have written a claim, so a process is not ended because a claim names it. The process
itself has to prove it: a program whose child processes may outlive it puts its identity into their
environment (``leaving_mark``), and a process is ended (``end``) only if it carries the mark of a
process that has ended. No other user can set or read that mark.
"""

from __future__ import annotations

import functools
import os
import platform
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Process = dict[str, Any]
"""``{"machine": str, "pid": int, "start": int | None}``: the identity as JSON."""

MARK = "BATCHSCALE_STARTED_BY"
"""The environment variable that identifies the process which started another."""

_STAT = "/proc/{}/stat"
_ENVIRONMENT = "/proc/{}/environ"
_STARTING = 1.0
"""Seconds that a program may take to start; usually it is a few milliseconds."""
_KEEP_ENVIRONMENT = "SPT_NOENV"
"""Makes Ray's processes write their titles over their command line only, not over the
environment."""


@functools.cache
def machine() -> str:
    """A name that only processes which can see each other share."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as stream:
            boot = stream.read().strip()
        return f"{platform.node()}/{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return platform.node()


def identify(pid: int | None = None) -> Process:
    """This process, or another of this machine."""
    number = os.getpid() if pid is None else pid
    state = _stat(number)
    return {"machine": machine(), "pid": number, "start": state[1] if state else None}


def alive(process: Mapping[str, Any]) -> bool | None:
    """Whether it still runs; ``None`` if that is not known here (another machine)."""
    if process.get("machine") != machine():
        return None
    pid, start = int(process["pid"]), process.get("start")
    if os.path.exists("/proc/self/stat"):
        state = _stat(pid)
        return state is not None and state[0] not in "ZX" and start in (None, state[1])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def leaving_mark() -> Iterator[None]:
    """Processes that are started inside, and their children, carry this process's identity."""
    mark = _mark(identify())
    given = {} if mark is None else {MARK: mark, _KEEP_ENVIRONMENT: "1"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def end(process: Mapping[str, Any], *, starter: Mapping[str, Any], grace: float = 2.0) -> bool:
    """End a process that ``starter`` has left: SIGTERM, then SIGKILL after ``grace`` seconds.

    It is one if it runs on this machine, with the start time that is given, and carries the mark of
    ``starter``, which is gone. Any other process is left alone: this process, and those of which
    this is not known (no ``/proc``, another user's process).

    Returns whether the process has ended.
    """
    signalled = False
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 2.0)):
        # A process that is about to end has no environment any more: wait for it.
        signalled |= _is_left(process, starter) and _send(process, number)
        until = time.monotonic() + patience
        while signalled and alive(process) and time.monotonic() < until:
            time.sleep(0.02)
    return alive(process) is False


def _is_left(process: Mapping[str, Any], starter: Mapping[str, Any]) -> bool:
    if process.get("start") is None or not alive(process) or int(process["pid"]) == os.getpid():
        return False
    mark = _mark(starter)
    if mark is None or alive(starter) is not False:
        return False
    return f"{MARK}={mark}".encode() in _environment(process).split(b"\0")


def _environment(process: Mapping[str, Any]) -> bytes:
    """The environment of a process that runs, as the system shows it; empty where it does not.

    It is empty too for a moment while a program starts (Linux lists it only once the program is
    loaded), and for good once it ends: such a process is read again for ``_STARTING`` seconds.
    """
    until = time.monotonic() + _STARTING
    while True:
        try:
            with open(_ENVIRONMENT.format(int(process["pid"])), "rb") as stream:
                environment = stream.read()
        except OSError:
            return b""
        if environment or not alive(process) or time.monotonic() >= until:
            return environment
        time.sleep(0.01)


def _mark(process: Mapping[str, Any]) -> str | None:
    """An identity as one text; ``None`` where it is not known in full."""
    if process.get("start") is None:
        return None
    return f"{process['machine']}/{process['pid']}/{process['start']}"


def _send(process: Mapping[str, Any], number: signal.Signals) -> bool:
    if not alive(process):
        return False
    try:
        os.kill(int(process["pid"]), number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time (clock ticks after boot) of a process of this machine."""
    try:
        with open(_STAT.format(pid)) as stream:
            after_name = stream.read().rpartition(")")[2].split()
    except OSError:
        return None
    return after_name[0], int(after_name[19])
