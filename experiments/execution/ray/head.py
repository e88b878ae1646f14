"""Whether the cluster's head still answers.

Ray itself waits for a minute in silence, then aborts the program. The head is asked by a connection
to its port, from a thread: a call into Ray might not come back.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EVERY_SECONDS = 1.0
_LOST_SECONDS = 8.0
"""Seconds without an answer after which the head is gone."""


@contextmanager
def watching_head(address: str, on_lost: Callable[[], None]) -> Iterator[None]:
    """Inside, ``on_lost()`` is called once if nothing listens at the head's address any more.

    Args:
        address: ``HOST:PORT`` of the head.
    """
    over = threading.Event()
    thread = threading.Thread(
        target=_watch, args=(address, on_lost, over), name="head", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()


def _watch(address: str, on_lost: Callable[[], None], over: threading.Event) -> None:
    silent, last = 0.0, time.monotonic()
    while not over.wait(_EVERY_SECONDS):
        answered = _answers(address)
        now = time.monotonic()
        # A process that was suspended has not heard either: one gap counts little.
        silent = 0.0 if answered else silent + min(now - last, 2 * _EVERY_SECONDS)
        last = now
        if silent >= _LOST_SECONDS:
            if not over.is_set():
                on_lost()
            return


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_EVERY_SECONDS):
            return True
    except OSError:
        return False
