"""What a worker does beside its training, on a clock of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from experiments.execution.ledger import Ledger
from experiments.scheduling.jobs import Channel, More, Step
from results.errors import ResultsError


@dataclass(frozen=True, kw_only=True)
class At:
    """Where a pack stands."""

    step: int = 0
    steps: int = 0
    """Of all its trials together, since this worker began."""
    values: Mapping[str, float | None] = field(default_factory=dict)
    """Last metric of each trial still training."""


Progress = Callable[[], At]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds between what a worker does besides training."""

    ask: float = 0.5
    renew: float = 10.0
    commit: float = 30.0
    snapshot: float = 30.0


class Heartbeat:
    """A thread beside the training: renews the claim, reports progress, hears what is asked.

    A thread, so that a claim outlives a long evaluation or a slow first loading of data.
    """

    def __init__(
        self,
        pack: str,
        ledger: Ledger,
        wire: Channel,
        pace: Pace,
        progress: Progress,
    ) -> None:
        self._pack, self._ledger, self._wire, self._pace = pack, ledger, wire, pace
        self._progress = progress
        self._closed = threading.Event()
        self._asks = wire.asks(pack)
        self.lost = False
        self.error: ResultsError | None = None
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat {pack}", daemon=True)
        self._thread.start()

    def asked_to_stop(self) -> bool:
        return self.lost or self.error is not None or self._asks.stop

    def known(self) -> tuple[int, ...]:
        return self._asks.known

    def more(self) -> tuple[More, ...]:
        return self._asks.more

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _beat(self) -> None:
        renewed, last = time.monotonic(), 0
        while not self._closed.wait(self._pace.ask):
            self._asks = self._wire.asks(self._pack)
            at = self._progress()
            if at.steps != last:
                last = at.steps
                values = tuple(at.values.values())
                step = Step(pack=self._pack, step=at.step, steps=at.steps, values=values)
                self._wire.tell(step)
            if time.monotonic() - renewed >= self._pace.renew:
                renewed = time.monotonic()
                state = {trial: (at.step, value) for trial, value in at.values.items()}
                try:
                    self.lost = self.lost or not self._ledger.renew(self._pack, state)
                except ResultsError as error:  # raised where the training is
                    self.error = error
