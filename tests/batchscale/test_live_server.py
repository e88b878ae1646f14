"""What the server of the live page answers, and what it refuses."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from batchscale.live import server as serving
from batchscale.live.content import Content
from batchscale.live.server import Server
from batchscale.output.errors import CommandError


def page(payload: dict[str, Any] | None) -> str:
    return f"<!DOCTYPE html><p>{json.dumps(payload)}</p>"


@pytest.fixture
def content() -> Content:
    return Content(page, {"sentence": "reading"})


@contextmanager
def serves(content: Content) -> Iterator[Server]:
    """A server of this process."""
    made = Server(content, port=0)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def server(content: Content) -> Iterator[Server]:
    with serves(content) as made:
        yield made


class Reply:
    def __init__(self, server: Server, path: str, method: str = "GET", **headers: str) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        got = connection.getresponse()
        self.status, self.headers, self.body = got.status, got.headers, got.read()
        connection.close()


def test_the_page_and_the_state(server: Server, content: Content) -> None:
    first = Reply(server, "/")
    assert first.status == 200
    assert first.headers["Content-Type"] == "text/html; charset=utf-8"
    assert first.body == b"<!DOCTYPE html><p>null</p>"
    state = Reply(server, "/state.json")
    assert state.headers["Content-Type"] == "application/json"
    assert json.loads(state.body) == {"payload": None, "status": {"sentence": "reading"}}
    content.set_payload({"name": "</script>ü"})
    content.set_status({"sentence": "done"})
    again = Reply(server, "/state.json?x=1")
    assert json.loads(again.body) == {
        "payload": {"name": "</script>ü"}, "status": {"sentence": "done"},
    }  # fmt: skip
    assert Reply(server, "/").body == page({"name": "</script>ü"}).encode()


def test_a_state_that_is_known_is_not_sent_again(server: Server, content: Content) -> None:
    tag = Reply(server, "/state.json").headers["ETag"]
    known = Reply(server, "/state.json", If_None_Match=tag)
    assert (known.status, known.body, known.headers["ETag"]) == (304, b"", tag)
    assert Reply(server, "/state.json", If_None_Match=f'"other", {tag}').status == 304
    content.set_status({"sentence": "later"})
    new = Reply(server, "/state.json", If_None_Match=tag)
    assert new.status == 200
    assert new.headers["ETag"] != tag
    content.set_payload({"a": 1})
    assert Reply(server, "/state.json", If_None_Match=new.headers["ETag"]).status == 200


@pytest.mark.parametrize("path", ["/", "/state.json", "/nothing"])
def test_headers_keep_it_to_itself(server: Server, path: str) -> None:
    headers = Reply(server, path).headers
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers
    assert "Python" not in headers["Server"]


def test_head_is_get_without_the_body(server: Server) -> None:
    head = Reply(server, "/", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(Reply(server, "/").body))


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/../", "/state.json/", "/%2e%2e/etc/passwd", "/index.html", "*"]
)
def test_there_is_nothing_else(server: Server, path: str) -> None:
    reply = Reply(server, path)
    assert reply.status == 404
    assert reply.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_it_is_only_to_read(server: Server, method: str) -> None:
    reply = Reply(server, "/", method)
    assert reply.status == 405
    assert reply.headers["Allow"] == "GET, HEAD"
    assert Reply(server, "/", "BREW").status == 501


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST", 200),
        ("localhost:9000", 200),  # through a tunnel
        ("[::1]:{port}", 200),
        ("127.0.0.2", 200),
        ("evil.example", 403),
        ("evil.example:{port}", 403),
        ("127.0.0.1.evil.example:{port}", 403),
        ("localhost.evil.example", 403),
        ("192.168.1.5:{port}", 403),
        ("", 403),
    ],
)
@pytest.mark.parametrize("path", ["/", "/state.json"])
def test_a_host_that_is_not_this_machine_is_refused(
    server: Server, host: str, status: int, path: str
) -> None:
    reply = Reply(server, path, Host=host.format(port=server.port))
    assert reply.status == status
    assert (b"payload" in reply.body or b"null" in reply.body) == (status == 200)


def raw(server: Server, request: bytes) -> bytes:
    """All of what a request gets whose connection is closed after it."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(request)
        return connection.makefile("rb").read()


def test_odd_requests_are_refused(server: Server) -> None:
    assert b" 403 " in raw(server, b"GET / HTTP/1.1\r\n\r\n")
    two = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert b"403" in raw(server, two)
    absolute = b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert b"404" in raw(server, absolute)
    assert b"payload" not in raw(server, b"nonsense\r\n\r\n")


def test_a_reader_that_goes_away_is_no_error(
    server: Server, content: Content, capfd: pytest.CaptureFixture[str]
) -> None:
    content.set_payload({"much": "x" * 6_000_000})
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.recv(10)
    assert Reply(server, "/state.json").status == 200
    assert capfd.readouterr().err == ""


def test_whoever_serves_others_is_asked_by_any_name(content: Content) -> None:
    with Server(content, host="0.0.0.0", port=0) as open_one:
        assert not open_one.loopback
        assert open_one.allows("my-machine.example:8080")
        assert open_one.url == f"http://{socket.gethostname()}:{open_one.port}/"
    with Server(content, port=0) as own:
        assert own.loopback
        assert own.url == f"http://127.0.0.1:{own.port}/"


def test_the_next_free_port_is_taken(content: Content, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(content, port=0) as first:
        monkeypatch.setattr(serving, "PORT", first.port)
        with Server(content) as second:
            assert first.port < second.port < first.port + serving._PORTS
        monkeypatch.setattr(serving, "_PORTS", 1)
        with pytest.raises(CommandError, match="Address already in use") as error:
            Server(content)
        assert "--port 0" in (error.value.hint or "")
        with pytest.raises(CommandError, match=f"cannot listen at port {first.port} of 127.0.0.1"):
            Server(content, port=first.port)


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("no such host", "--host no such host is not an address of this machine"),
        ("a" * 300, "is not an address of this machine"),
        ("203.0.113.7", "of 203.0.113.7: "),
    ],
)
def test_a_host_of_others_is_one_line(content: Content, host: str, says: str) -> None:
    with pytest.raises(CommandError, match=says) as error:
        Server(content, host=host, port=0)
    assert "127.0.0.1" in (error.value.hint or "")
