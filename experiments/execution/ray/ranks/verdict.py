"""Why a pack of a worker group ended early: which rank's exception or death is the cause.

When a rank raises or dies, the collective operations of the others fail too. What those raise is a
consequence, and is never taken for a failure of the user's code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from experiments.scheduling.messages import Failure

Error = Literal["raised", "left", "waited"]
"""What an exception of a rank says: ``raised``, it is its code's own; ``left``, another rank has
left a collective operation; ``waited``, it has waited too long for another."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a rank's code has raised."""

    rank: int
    failure: Failure
    error: Error


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The end of a pack on a group in which a rank raised or died."""

    failure: Failure | None
    """The pack's failure; ``None``: ranks were lost, and the pack goes on with others."""


LOST = Verdict(failure=None)


def judge(size: int, reports: Sequence[Report], dead: Mapping[int, str], timeout: float) -> Verdict:
    """The verdict on a pack, once each rank has reported or died, or was given up as silent.

    Args:
        size: ranks of the group.
        reports: in the order in which they came.
        dead: ranks whose process has ended, and Ray's text about it.
        timeout: seconds that a rank waits for the others in a collective operation.
    """
    if dead:
        return LOST
    for report in reports:
        if report.error == "raised":
            return Verdict(failure=report.failure)
    silent = sorted(set(range(size)) - {report.rank for report in reports})
    if silent and any(report.error == "waited" for report in reports):
        return Verdict(failure=hanging(silent, size, timeout))
    return LOST


def hanging(ranks: Sequence[int], size: int, timeout: float) -> Failure:
    """The failure of a pack whose other ranks waited in vain for these."""
    which = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    message = f"{which} of {size} hung: the others waited {timeout:g} s for it"
    return Failure(
        message=message if len(ranks) == 1 else message.removesuffix("it") + "them",
        hint="code that only some ranks run must not wait, nor communicate",
        traceback=message,
        clear=False,
        cause="hung",
    )


def killed(rank: int, size: int, failure: Failure, deaths: int) -> Failure:
    """The failure of a pack of which a rank's process ended, so many times in a row."""
    return replace(failure, message=f"rank {rank} of {size}: {failure.message}", deaths=deaths)
