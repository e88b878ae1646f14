"""Who a process is, so that it is never taken for another one that got its number.

A process is its machine, its number and its start time. The machine is a running kernel and a
process namespace: two containers of one host do not see each other's processes. Where the system
does not tell (no ``/proc``), the start time is unknown and only a missing number proves an end.
"""

from __future__ import annotations

import functools
import os
import platform
import signal
import time
from collections.abc import Mapping
from typing import Any

Process = dict[str, Any]
"""``{"machine": str, "pid": int, "start": int | None}``: what is written down, as JSON."""

_STAT = "/proc/{}/stat"


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
    """Whether it still runs; ``None`` if that cannot be told from here (another machine)."""
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


def end(process: Mapping[str, Any], grace: float = 2.0) -> bool:
    """End a process of this machine: SIGTERM, then SIGKILL after ``grace`` seconds.

    Returns whether it has ended. Never touches another process that got its number, nor this one.
    """
    if alive(process) is None or int(process["pid"]) == os.getpid():
        return False
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 2.0)):
        if not _send(process, number):
            return not alive(process)
        until = time.monotonic() + patience
        while alive(process) and time.monotonic() < until:
            time.sleep(0.02)
    return not alive(process)


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
