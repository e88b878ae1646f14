"""The served content: the page, and the state that the page requests again and again.

Written by the one thread that watches, read by those that answer requests.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from batchscale.live import metrics

Payload = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A body with its type and tag."""

    body: bytes
    kind: str
    tag: str


class Content:
    """The latest payload and status, each encoded once.

    Args:
        page: makes the HTML of a payload, or of None while there is none yet.
    """

    def __init__(self, page: Callable[[Payload | None], str], status: Mapping[str, Any]) -> None:
        self._lock = threading.Lock()
        self._make_page = page
        self.status = dict(status)
        self._payload = b"null"
        self._page = _html(page(None))
        self._state = self._encoded()

    @property
    def page(self) -> Answer:
        """All of it as HTML."""
        with self._lock:
            return self._page

    @property
    def state(self) -> Answer:
        """``{"payload": …, "status": …}`` as JSON; its tag changes when either does."""
        with self._lock:
            return self._state

    @property
    def metrics(self) -> Answer:
        """The status as metrics for Prometheus, as of now."""
        return _answer(metrics.text(self.status, time.time()).encode(), metrics.KIND)

    def set_status(self, status: Mapping[str, Any]) -> None:
        """Replace the status."""
        with self._lock:
            self.status = dict(status)
            self._state = self._encoded()

    def set_payload(self, payload: Payload) -> None:
        """Replace the payload."""
        text, page = _json(payload), _html(self._make_page(payload))
        with self._lock:
            self._payload, self._page = text, page
            self._state = self._encoded()

    def _encoded(self) -> Answer:
        body = b'{"payload":%s,"status":%s}' % (self._payload, _json(self.status))
        return _answer(body, "application/json")


def _html(text: str) -> Answer:
    return _answer(text.encode(), "text/html; charset=utf-8")


def _answer(body: bytes, kind: str) -> Answer:
    return Answer(body=body, kind=kind, tag=f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
