"""Downloads: a quick check that the server answers, and one process at a time."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 5.0
"""Seconds that an address gets to answer."""


def reachable(url: str, seconds: float = PATIENCE) -> bool:
    """Whether the server of ``url`` answers at all within ``seconds``, through proxies if set.

    The request runs in a thread that may outlive this call: resolving a host name has no timeout.
    """
    answered = threading.Event()

    def request() -> None:
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, method="HEAD"), timeout=seconds
            ):
                answered.set()
        except urllib.error.HTTPError as error:  # "not found" comes from a server, 502 from a proxy
            if error.code < 500 and error.code != 407:
                answered.set()
        except (OSError, ValueError):
            return

    thread = threading.Thread(target=request, daemon=True, name="batchscale-reachable")
    thread.start()
    thread.join(seconds)
    return answered.is_set()


@contextmanager
def downloading(lock: Path, *, stale: float = 1800.0, silence: float = 30.0) -> Iterator[None]:
    """Hold ``lock`` (a file, created exclusively) while downloading; wait while another does.

    A lock older than ``stale`` seconds was left by a process that died. A server that sends nothing
    for ``silence`` seconds ends the download.
    """
    while True:
        try:
            lock.touch(exist_ok=False)
            break
        except FileExistsError:
            try:
                if time.time() - lock.stat().st_mtime > stale:
                    lock.unlink(missing_ok=True)
                    continue
            except FileNotFoundError:
                continue
            time.sleep(0.5)
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(silence)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
        lock.unlink(missing_ok=True)
