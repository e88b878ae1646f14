"""What is served now: the page, and the state that it asks for again and again.

Set by the one thread that watches, read by those that answer.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Payload = dict[str, Any]
Page = Callable[[Payload | None], str]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A body with its type and tag."""

    body: bytes
    kind: str
    tag: str


class Shown:
    """The latest payload and status, each encoded once."""

    def __init__(self, page: Page, status: Mapping[str, Any]) -> None:
        self._lock = threading.Lock()
        self._make = page
        self.status = dict(status)
        self._payload = b"null"
        self._page = _answer(page(None).encode(), "text/html; charset=utf-8")
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

    def tell(self, status: Mapping[str, Any]) -> None:
        """Show another status beside the same payload."""
        with self._lock:
            self.status = dict(status)
            self._state = self._encoded()

    def show(self, payload: Payload) -> None:
        """Show another payload."""
        text = _json(payload)
        page = _answer(self._make(payload).encode(), "text/html; charset=utf-8")
        with self._lock:
            self._payload, self._page = text, page
            self._state = self._encoded()

    def _encoded(self) -> Answer:
        body = b'{"payload":%s,"status":%s}' % (self._payload, _json(self.status))
        return _answer(body, "application/json")


def _answer(body: bytes, kind: str) -> Answer:
    return Answer(body=body, kind=kind, tag=f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def _json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
