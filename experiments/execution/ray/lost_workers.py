"""Why a pack's worker ended without a message, from Ray's error.

An exception of the pack's own code comes back as a ``Failure`` by the mailbox. Here is what happens
outside of that code: arguments that cannot be unpickled, a worker that cannot be set up, a process
that dies.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

from experiments.scheduling.messages import Cause, Failure
from results.counts import count

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r'^ +File "(?P<file>[^"]+)", line \d+', re.MULTILINE)
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: .*)?$")
_STAGED = re.compile(r"/[^\s\"]*/_ray_pkg_\w+/")
"""Path under which Ray unpacks the experiment's files on a worker."""
_KERNEL = Path("/proc/vmstat")
_SPARE_MEMORY = "micro_batch: N bounds what one pack holds; fewer CPUs for Ray train fewer at once"


def explain(text: str, *, times: int, log: str | None = None, killed: int | None = None) -> Failure:
    """The failure of such a pack.

    Args:
        text: Ray's error.
        times: how many workers in a row met it.
        log: what the last of them wrote to its standard error, where that can be read.
        killed: processes of its machine that the kernel has ended for lack of memory meanwhile,
            if available.
    """
    text = _STAGED.sub("", _COLOURS.sub("", text)).strip()
    often = f", {_TIMES.get(times, f'{times} times')} over" if times > 1 else ""
    died = "Worker exit type" in text or "actor died" in text.lower()
    if "low on memory" in text or "OutOfMemory" in text:
        message = "Ray ended the worker process" + often + ": its machine ran low on memory"
        return _failure(message, hint=_SPARE_MEMORY)
    if not died or "error raised in its creation task" in text:
        return _raised(text)
    if "node has died" in text or "node was preempted" in text or "NodeDied" in text:
        return _failure(f"the worker's node is gone{often}: {_last_line(text)}", cause="lost")
    detail = text.rpartition("Worker exit detail: ")[2]
    if "exit code" in detail:
        code = " ".join(detail[detail.index("exit code") :].split()).rstrip(".")
        cause: Cause = "lost" if "SIGTERM" in code else "died"
        return _failure(f"the worker process ended{often}: {code}", cause=cause)
    if log and (fatal := re.search(r"^Fatal Python error: (.*)$", log, re.MULTILINE)):
        stack = _to_the_users_code(log[fatal.start() :])
        message = f"the worker process crashed{often}: {fatal[1]}{_signal(fatal[1])}"
        return _failure(message, traceback=stack)
    if "connection error" not in detail:
        return _failure(f"the worker process is gone{often}: {_last_line(text)}")
    if killed:
        ended = count(killed, "process")
        reason = f"out of memory: the kernel ended {ended} of its machine for that"
        return _failure(f"the worker process was killed{often}: {reason}", hint=_SPARE_MEMORY)
    if log is None:
        return _failure(f"the worker process was killed, or crashed{often}; Ray's logs say more")
    if killed is None:
        return _failure(f"the worker process was killed (signal 9){often}: out of memory?")
    return _failure(f"the worker process was killed (signal 9), or ended itself (os._exit){often}")


def _signal(fault: str) -> str:
    """`` (signal 11, SIGSEGV)`` of ``Segmentation fault``; empty of an error of Python's own."""
    for number in _FAULTS:
        if (signal.strsignal(number) or "").lower() == fault.lower().replace("-", " "):
            return f" (signal {number}, {number.name})"
    return ""


_FAULTS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_TIMES = {2: "twice", 3: "three times"}


def killed_for_memory() -> int | None:
    """Processes of this machine that the kernel has ended for lack of memory since it started."""
    try:
        line = re.search(r"^oom_kill (\d+)$", _KERNEL.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return None
    return int(line[1]) if line else None


def worker_log(text: str, folder: Path) -> str | None:
    """The standard error of the worker process that an error of Ray's names, ``None`` if it is not
    in ``folder``."""
    pid = re.search(r"\bpid[:=] ?(\d+)", text)
    files = sorted(folder.glob(f"worker-*-{pid[1]}.err")) if pid else []
    return files[-1].read_text(encoding="utf-8", errors="replace") if files else None


def _raised(text: str) -> Failure:
    """The worker's Python code raised, outside of the pack's code."""
    from experiments.execution.failures import is_users  # with torch, which a group's actor lacks

    frames = list(_FRAME.finditer(text))
    users = next((frame for frame in frames if is_users(frame["file"])), None)
    traceback = f"Traceback (most recent call last):\n{text[users.start() :]}" if users else text
    return _failure(_last_line(text), traceback=traceback + "\n", cause="raised")


def _to_the_users_code(stack: str) -> str:
    """The stack of a crash, innermost line first, down to the outermost line of the user's code."""
    from experiments.execution.failures import is_users

    stack = _STAGED.sub("", stack)
    frames = [frame for frame in _FRAME.finditer(stack) if is_users(frame["file"])]
    if not frames:
        return stack.partition("Extension modules:")[0]
    return stack[: stack.find("\n", frames[-1].start())] + "\n"


def _last_line(text: str) -> str:
    """The line that names the exception: the last one that could."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _EXCEPTION.match(line) and not line.startswith("pid")]
    return (named or lines or ["Ray gives no reason"])[-1]


def _failure(
    message: str, *, hint: str | None = None, traceback: str = "", cause: Cause = "died"
) -> Failure:
    return Failure(message=message, hint=hint, traceback=traceback, cause=cause)


def unresponsive(seconds: float) -> Failure:
    """The failure of a pack whose process does not even let another thread run."""
    message = f"hung: no progress for {seconds:.0f} s, in code that does not let other threads run"
    return Failure(
        message=message,
        hint="C code that keeps Python's lock, or a regular expression without end",
        traceback=message + "\n",
        cause="hung",
    )


def without_actor() -> Failure:
    """The failure of a pack whose messages or rows could not be taken in: no trial is at fault."""
    return _failure(
        "a process of batchscale beside the driver, which takes in messages or rows, has died",
        cause="lost",
    )
