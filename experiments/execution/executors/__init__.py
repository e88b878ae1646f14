"""Who trains the packs: this process, Ray Tune, or Ray Train inside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from experiments.execution.signals import Stop
from experiments.scheduling.dispatch import Dispatcher

Look = Callable[[], None]
"""Reads what other drivers have done and claimed into the dispatcher."""

LOOK_SECONDS = 2.0
"""Between two looks at what other drivers have done and claimed."""


class Executor(Protocol):
    """Takes packs from a dispatcher until there are none."""

    slots: int
    """Packs that it trains at once."""
    device: str
    """``cpu`` or ``cuda``: what its workers train on."""

    def run(self, dispatcher: Dispatcher, stop: Stop, look: Look) -> None:
        """Train until the dispatcher has no more, is stopped, or ``stop`` asks.

        On return no pack is out: each was recorded, or is kept in a snapshot.
        """
