"""Seconds of a pack: training, evaluation, and the rest.

The device is waited for before training and evaluation are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import torch

_HEARTBEAT_SECONDS = 2.0


@dataclass(kw_only=True)
class Clock:
    """Starts when it is made."""

    train: float = 0.0
    evaluation: float = 0.0
    before: float = 0.0
    """All seconds up to the snapshot that the pack goes on from."""
    started: float = field(default_factory=time.perf_counter)

    @property
    def total(self) -> float:
        """All seconds, those of loading the data among them."""
        return time.perf_counter() - self.started + self.before

    @property
    def other(self) -> float:
        """Seconds of neither training nor evaluation."""
        return max(0.0, self.total - self.train - self.evaluation)

    @contextmanager
    def timed(self, name: Literal["train", "evaluation"], device: torch.device) -> Iterator[None]:
        """Add the seconds of the block."""
        began = time.perf_counter()
        yield
        wait_for(device)
        setattr(self, name, getattr(self, name) + time.perf_counter() - began)


def wait_for(device: torch.device) -> None:
    """Wait until the device has done all that it has been told to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def next_chunk(steps: int, seconds: float) -> int:
    """Steps to train before the next heartbeat, from how long the last ``steps`` took."""
    if seconds <= 0:
        return steps * 8
    return max(1, min(steps * 8, int(steps * 0.5 * _HEARTBEAT_SECONDS / seconds)))
