"""The end of a process whose training does not come back: what is finished is recorded before."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Protocol

from experiments.execution.ledger import Ledger
from experiments.records.snapshots import leave_to_next_run
from experiments.scheduling.jobs import Job, PackEnd
from results.errors import line

_ERROR, _INTERRUPTED = 1, 130


class Leave(Protocol):
    """Ends the process of a pack."""

    def __call__(self, end: Callable[[], PackEnd], ledger: Ledger, job: Job) -> None:
        """``end()`` records what has finished; this does not return."""


def end_program(end: Callable[[], PackEnd], ledger: Ledger, job: Job) -> None:
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
        leave_to_next_run(ledger, job, failure.trial)
        _say(f"error: {line(failure.message)}, in code that cannot be interrupted")
        _say(
            "hint: give the same command again: "
            + ("the trial is recorded as failed, and " if failure.trial else "")
            + "the other trials go on; with --address auto such a trial ends its worker alone"
        )
    ledger.release(job.pack.id)
    sys.stdout.flush()
    os._exit(_INTERRUPTED if failure is None else _ERROR)


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
    os._exit(_ERROR)


def _say(text: str) -> None:
    """Print a line below what a display of the terminal has drawn, with its cursor."""
    cleared = "\r\x1b[J\x1b[?25h" if sys.stderr.isatty() else ""
    print(f"{cleared}{text}", file=sys.stderr, flush=True)
