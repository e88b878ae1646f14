"""SIGTERM at a worker: a spot machine is taken back, or a job's time is over.

Its pack writes a snapshot at the next evaluation and ends; another worker goes on from there.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from experiments.scheduling.messages import Assignment, Channel, Failure, Message, Over

_received = threading.Event()
_training = threading.Event()


class Listens:
    """A mixin of a Tune trainable: SIGTERM is received once its actor is set up."""

    def setup(self, config: dict[str, Any], **more: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _receive)
        super().setup(config, **more)  # type: ignore[misc]


def _receive(number: int, frame: FrameType | None) -> None:
    del number, frame
    _received.set()
    if not _training.is_set():
        sys.exit(1)


@contextmanager
def packs_end_on_sigterm(line: Channel) -> Iterator[Channel]:
    """The channel of a pack that ends once SIGTERM was received; then this process ends."""

    def ask(before: Assignment) -> Assignment:
        now = line.ask(before)
        return replace(now, stop=now.stop or _received.is_set())

    def send(message: Message) -> None:
        if isinstance(message, Over) and message.end == "stopped" and _received.is_set():
            message = replace(message, end="failed", failure=_lost())
        line.send(message)

    _training.set()
    try:
        yield Channel(send=send, ask=ask)
    finally:
        _training.clear()
        if _received.is_set():
            os._exit(1)


def _lost() -> Failure:
    message = (
        "the worker was asked to end (SIGTERM): its machine is taken back, or its time is over"
    )
    return Failure(message=message, cause="lost")
