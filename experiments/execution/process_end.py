"""The ends of a process that trains: one whose training does not come back, after what is finished
is recorded, and one that a trial's own code ends."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from experiments.execution.ledger import Ledger
from experiments.records.snapshots import leave_to_next_run
from experiments.scheduling.messages import Assignment, Over
from results.errors import line

_ERROR, _INTERRUPTED = 1, 130
_exit = os._exit


EndProcess = Callable[[Callable[[], Over], Ledger, Assignment], None]
"""``(end, ledger, assignment)``: ends the process of a pack, after ``end()`` has recorded what has
finished; it does not return."""


def end_program(end: Callable[[], Over], ledger: Ledger, assignment: Assignment) -> None:
    """End this program, the driver, with a line that says why.

    Before, the trials of a pack that hung are left to the next run, which goes on without the one
    that hung, where it is known, and else isolates it.
    """
    ended = end()
    failure = ended.failure
    if failure is None:
        _say("interrupted: training did not come back and was cut off; its last snapshot is kept")
        _say("hint: give the same command again to continue")
    else:
        leave_to_next_run(ledger, assignment, failure.trial)
        _say(f"error: {line(failure.message)}, in code that cannot be interrupted")
        _say(
            "hint: give the same command again: "
            + ("the trial is recorded as failed, and " if failure.trial else "")
            + "the other trials go on; with --address auto such a trial ends its worker alone"
        )
    ledger.release(assignment.pack.id)
    sys.stdout.flush()
    _exit(_INTERRUPTED if failure is None else _ERROR)


def end_without_cluster(address: str) -> None:
    """End this program, the driver of a cluster whose head is gone.

    Calls into Ray would wait, and Ray would abort the program after a minute.
    """
    _say(f"error: the head of the Ray at {address} does not answer any more")
    _say(
        "hint: what was committed is safe; start the cluster, then give the same command again "
        "to continue"
    )
    sys.stdout.flush()
    _exit(_ERROR)


@contextmanager
def saying_exits(trials: str) -> Iterator[None]:
    """Inside, code that ends this process says so: ``os._exit`` in a line, with a status that is no
    success, a fault (SIGSEGV, SIGABRT) by its stack.

    Args:
        trials: what trains, in words.
    """
    process, faults = os.getpid(), not faulthandler.is_enabled()

    def end(status: int) -> NoReturn:
        if os.getpid() == process:  # no child that the code has forked
            _say(f"error: the code of a trial ended this process: os._exit({status}), in {trials}")
            _say("hint: with --address auto it ends a worker alone, and its trial is found")
            status = status or _ERROR
        _exit(status)

    os._exit = end
    if faults:
        with suppress(AttributeError, OSError, RuntimeError):  # no file that it could be written to
            faulthandler.enable()
    try:
        yield
    finally:
        os._exit = _exit
        if faults:
            faulthandler.disable()


def _say(text: str) -> None:
    """Print a line below what a display of the terminal has drawn, with its cursor."""
    cleared = "\r\x1b[J\x1b[?25h" if sys.stderr.isatty() else ""
    print(f"{cleared}{text}", file=sys.stderr, flush=True)
