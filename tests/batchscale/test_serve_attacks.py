"""Slow and many connections to ``serve``, and scripts that are not the page's own."""

from __future__ import annotations

import base64
import hashlib
import http.client
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from analysis.report import page as pages
from batchscale.live import server as serving
from batchscale.live.content import Content
from batchscale.live.server import Server
from tests.batchscale.test_live_server import serves

PATIENCE = 120.0
BEGUN = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(serving, "_CONNECTIONS", 8)
    with serves(Content(lambda _: "<!DOCTYPE html>", {})) as server:
        yield server


def answer(port: int) -> int:
    """The status of an ordinary request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/state.json")
    status = connection.getresponse().status
    connection.close()
    return status


def connect(port: int) -> socket.socket:
    """A connection that has begun a request."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.sendall(BEGUN)
    return connection


def test_slow_connections_leave_no_thread_to_more_than_there_are_places(server: Server) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(server.port)) for _ in range(8)]
        with pytest.raises(ConnectionError):
            answer(server.port)
        slow[0].close()
        for _ in range(1000):  # until its thread has met the end
            with suppress(OSError):
                assert answer(server.port) == 200
                break
            time.sleep(0.01)
        else:
            pytest.fail("a place is never given back")


def test_a_silent_connection_is_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving.Handler, "timeout", 0.05)
    with connect(server.port) as slow:
        assert slow.recv(1) == b""
    assert answer(server.port) == 200


def policy(text: str) -> dict[str, str]:
    return dict(part.strip().split(" ", 1) for part in text.split(";"))


@pytest.mark.parametrize("live", [None, "/state.json"])
def test_only_the_scripts_of_the_page_run(live: str | None) -> None:
    text = pages(None, live=live)
    meta = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert meta is not None
    scripts = re.findall(
        r"<script(?: type=\"text/plain\" id=\"plotly\")?>(.*?)</script>", text, re.S
    )
    assert len(scripts) == 2
    hashes = {
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
        for each in scripts
    }
    assert set(policy(meta[1])["script-src"].split()) == hashes
    assert "\r" not in "".join(scripts)  # a browser reads \r as \n, and would compute another hash
    header = serving._headers()["Content-Security-Policy"]
    assert policy(header)["script-src"] == policy(meta[1])["script-src"]
    assert policy(header)["default-src"] == "'none'"
