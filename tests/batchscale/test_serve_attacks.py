"""Slow and many connections to ``serve``, and scripts that are not the page's own."""

from __future__ import annotations

import base64
import hashlib
import http.client
import os
import re
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from analysis.report import page as pages
from batchscale.live import server as serving
from batchscale.live.content import Content
from batchscale.live.server import Server
from tests.test_imports import ROOT

PATIENCE = 120.0
BEGUN = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
PROGRAM = """
import resource
from batchscale.live.content import Content
from batchscale.live.server import Server

resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
with Server(Content(lambda _: "<!DOCTYPE html>", {}), port=0) as server:
    print(server.port, flush=True)
    server.serve_forever()
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(serving, "_CONNECTIONS", 8)
    server = Server(Content(lambda _: "<!DOCTYPE html>", {}), port=0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


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


def test_slow_connections_give_way(server: Server) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(server.port)) for _ in range(30)]
        assert answer(server.port) == 200
        for connection in slow[:22]:  # the oldest were closed
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        assert len(server._waiting) <= 8
        assert answer(server.port) == 200


@pytest.mark.slow
def test_an_active_reader_stays(server: Server) -> None:
    reader = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    reader.connect()
    line = reader.sock
    with ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(connect(server.port))
            reader.request("GET", "/state.json")
            assert reader.getresponse().read()
        assert reader.sock is line  # one connection, which was never closed
    reader.close()


@pytest.mark.slow
def test_1500_slow_connections(tmp_path: os.PathLike[str]) -> None:
    """Of a server that may open 256 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_000:
        pytest.skip(f"this user may open {hard} files, and the test needs 1,500")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_000), hard))
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert program.stdout is not None
        port = int(program.stdout.readline())
        with ExitStack() as stack:
            for number in range(1_500):
                stack.enter_context(connect(port))
                if number % 300 == 299:
                    assert answer(port) == 200
            assert answer(port) == 200
        assert answer(port) == 200
        assert program.poll() is None
    finally:
        program.kill()
        _, err = program.communicate()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert err == ""


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
