"""Downloads: a quick check that the server answers, and one process at a time."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from workloads.errors import WorkloadError, first_line

_ANSWER_SECONDS = 5.0
"""Seconds that an address gets to answer."""
_SILENCE_SECONDS = 30.0
"""Seconds without a byte after which a download has failed."""


def reachable(url: str, seconds: float = _ANSWER_SECONDS) -> bool:
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
def downloading(problem: str, url: str | None, root: Path, hint: str) -> Iterator[None]:
    """Download inside, into the data root: nobody else does so meanwhile.

    Args:
        problem: what is missing, for messages.
        url: an address that must answer first; ``None``: nothing is fetched, but unpacked.

    Raises:
        WorkloadError: the server does not answer, sends nothing for half a minute, or what is done
            inside fails.
    """
    if url is not None and not reachable(url):
        raise WorkloadError(f"{problem}, and {url} does not answer", hint=hint)
    before = socket.getdefaulttimeout()
    try:
        root.mkdir(parents=True, exist_ok=True)
        folder = os.open(root, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(folder, fcntl.LOCK_EX)  # released too if this process dies
            socket.setdefaulttimeout(_SILENCE_SECONDS)
            yield
        finally:
            socket.setdefaulttimeout(before)
            os.close(folder)
    except (OSError, RuntimeError) as error:
        raise WorkloadError(
            f"{problem}, and its download failed: {first_line(error)}", hint=hint
        ) from error
