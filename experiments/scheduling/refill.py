"""A pack's room for more trials of its study: offered to the driver, filled with what it gives."""

from __future__ import annotations

from experiments.execution.ledger import Ledger
from experiments.scheduling.jobs import Channel, Job, More, Offer, Refused

_SHARE = 8
"""Room is offered once an eighth of the pack is free: a few trials at a time join cheaper."""


class Refill:
    """The offers of one pack, on rank 0. One is open at a time, and every one is answered.

    After an answer without trials nothing is offered until further trials have ended.
    """

    def __init__(self, job: Job, ledger: Ledger, wire: Channel) -> None:
        self._pack, self._size = job.pack.id, job.size
        self._ledger, self._wire = ledger, wire
        self._offers = self._answers = 0
        self._at: int | None = None

    def offer(self, active: int) -> None:
        """Tell the driver how many trials could join, now that so many train."""
        if self._size is None or self._offers > self._answers or active == self._at:
            return
        room = self._size - active
        if room >= max(1, self._size // _SHARE):
            self._offers, self._at = self._offers + 1, active
            self._wire.tell(Offer(pack=self._pack, room=room))

    def take(self, answers: tuple[More, ...]) -> tuple[More, ...]:
        """Of all answers so far, the new ones that hold trials; these have been claimed.

        Those that somebody else has by now are refused.
        """
        new, self._answers = answers[self._answers :], len(answers)
        claimed: list[More] = []
        for more in new:
            ids = tuple(trial.id for trial in more.trials)
            if not ids:
                continue
            if self._ledger.extend(self._pack, ids, more.before):
                claimed.append(more)
                self._at = None
            else:
                self._wire.tell(Refused(pack=self._pack, trials=ids))
        return tuple(claimed)
