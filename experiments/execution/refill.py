"""A pack's free places: offered to the driver, filled with the trials that it gives."""

from __future__ import annotations

from experiments.execution.ledger import Ledger
from experiments.scheduling.messages import Channel, Job, More, Offer, Refused

_SHARE = 8
"""Places are offered once an eighth of the pack is free: it is cheaper if several trials join."""


class Refill:
    """The offers of one pack, on rank 0. One is open at a time, and every one is answered.

    After an answer without trials nothing is offered until further trials have ended.
    """

    def __init__(self, job: Job, ledger: Ledger, channel: Channel) -> None:
        self._pack, self._size = job.pack.id, job.size
        self._ledger, self._channel = ledger, channel
        self._offers = self._answers = 0
        self._active: int | None = None

    def offer(self, active: int) -> None:
        """Send the driver how many trials can join, where ``active`` train."""
        if self._size is None or self._offers > self._answers or active == self._active:
            return
        places = self._size - active
        if places >= max(1, self._size // _SHARE):
            self._offers, self._active = self._offers + 1, active
            self._channel.send(Offer(pack=self._pack, places=places))

    def take(self, answers: tuple[More, ...]) -> tuple[More, ...]:
        """The new answers that hold trials; these have been claimed.

        Those that another driver has claimed or recorded meanwhile are refused.
        """
        new, self._answers = answers[self._answers :], len(answers)
        claimed: list[More] = []
        for more in new:
            ids = tuple(trial.id for trial in more.trials)
            if not ids:
                continue
            if self._ledger.extend(self._pack, ids, more.before):
                claimed.append(more)
                self._active = None
            else:
                self._channel.send(Refused(pack=self._pack, trials=ids))
        return tuple(claimed)
