"""A thread of a worker beside its training: claim, control, progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from experiments.execution.ledger import Ledger
from experiments.execution.watchdog import Watchdog
from experiments.scheduling.messages import Assignment, Channel
from results.errors import ResultsError


@dataclass(frozen=True, kw_only=True)
class Position:
    """The progress of a pack."""

    step: int = 0
    steps: int = 0
    """Steps of all its trials together, since this worker began."""
    values: Mapping[str, float | None] = field(default_factory=dict)
    """Last metric of each trial still training."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds between the tasks of a worker besides training."""

    ask: float = 0.5
    renew: float = 10.0
    commit: float = 30.0
    snapshot: float = 30.0
    hang: float = 600.0
    """Least seconds without progress after which a pack counts as hung (``watchdog``)."""
    silent: float = 120.0
    """Seconds without a question after which a worker's process is ended."""
    stop: float = 6.0
    """Seconds that training may go on without progress after a request to stop. Then it is cut
    off, and the pack's last snapshot is kept."""
    leave: float = 2.0
    """Seconds after an interruption that training has to come back, before its process ends."""
    collective: float = 600.0
    """Timeout of a collective operation of a group: longer than any evaluation for which a rank may
    have to wait."""


class Heartbeat:
    """A thread beside the training: renews the claim, reports progress, polls the driver.

    A thread, so that a claim outlives a long evaluation or a slow first loading of data.
    """

    def __init__(
        self,
        assignment: Assignment,
        ledger: Ledger,
        channel: Channel,
        pace: Pace,
        position: Callable[[], Position],
        watchdog: Watchdog,
        leave: Callable[[], None],
    ) -> None:
        """
        Args:
            leave: called where training cannot be interrupted; it does not return.
        """
        self._watchdog, self._leave = watchdog, leave
        self._ledger, self._channel, self._pace = ledger, channel, pace
        self._position, self._reported = position, 0
        self._closed = threading.Event()
        self.assignment = channel.ask(assignment)
        """As the driver last had it."""
        self.lost = False
        """Whether the claim is lost."""
        self.error: ResultsError | None = None
        self._thread = threading.Thread(
            target=self._beat, name=f"heartbeat {assignment.pack.id}", daemon=True
        )
        self._thread.start()

    def stop_requested(self) -> bool:
        return self.lost or self.error is not None or self.assignment.stop

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def report(self) -> Position:
        """Say where the training is, if it has moved."""
        at = self._position()
        if at.steps != self._reported:
            self._reported = at.steps
            self._channel.send(self.assignment.progress(at.step, at.steps, at.values.values()))
        return at

    def _beat(self) -> None:
        renewed = time.monotonic()
        beat, cut = renewed, 0.0
        while not self._closed.wait(self._pace.ask):
            self.assignment = self._channel.ask(self.assignment)
            seconds, beat = time.monotonic() - beat, time.monotonic()
            if self._watchdog.beat(seconds, stop=self.stop_requested()):
                self._watchdog.interrupt()
                cut += seconds
                if cut > self._pace.leave + seconds and self._watchdog.inside:
                    self._leave()
            at = self.report()
            if time.monotonic() - renewed >= self._pace.renew:
                renewed = time.monotonic()
                progress = {trial: (at.step, value) for trial, value in at.values.items()}
                try:
                    self.lost = self.lost or not self._ledger.renew(
                        self.assignment.pack.id, progress
                    )
                except ResultsError as error:  # raised where the training is
                    self.error = error
