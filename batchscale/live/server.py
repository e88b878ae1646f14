"""Serves the page and its state, read-only, and to this machine alone unless another host is given.

A page of another site must not read results through the reader's browser: on loopback the host that
a request names has to be this machine, whatever name an attacker's server gives it.

A connection costs a thread and a file: there are at most ``_CONNECTIONS``, and further ones are
closed at once.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
import threading
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from batchscale.live.content import Answer, Content
from batchscale.output.errors import CommandError, summary_line

STATE = "/state.json"
METRICS = "/metrics"
PORT = 8080
_PORTS = 100
"""Number of ports tried, from ``PORT`` on."""
_SECONDS = 10.0
"""Seconds of silence after which a connection is closed."""
_CONNECTIONS = 64
"""Most connections at a time."""


@cache
def _headers() -> Mapping[str, str]:
    """Headers of every answer. Only the page's own scripts run, known by their hashes."""
    from analysis.report.page import script_sources

    return {
        "Cache-Control": "no-store",
        "Content-Security-Policy": f"default-src 'none'; script-src {script_sources()}; "
        "style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }


class Server(ThreadingHTTPServer):
    """Answers from ``content``; closed by ``server_close``.

    ``port`` None is the first free one from ``PORT`` on, 0 any free one.

    Raises:
        CommandError: the port is taken or forbidden, or ``host`` is not an address of this machine.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, content: Content, host: str = "127.0.0.1", port: int | None = None) -> None:
        self.content = content
        self.host = host
        self._places = threading.BoundedSemaphore(_CONNECTIONS)
        address = _address(host)
        self.address_family = address[0]
        self.loopback = ipaddress.ip_address(address[1]).is_loopback
        wanted = range(PORT, PORT + _PORTS) if port is None else [port]
        for number in wanted:
            try:
                super().__init__((address[1], number), Handler)
            except OSError as error:
                if error.errno == errno.EADDRINUSE and number != wanted[-1]:
                    continue
                raise CommandError(
                    f"cannot listen at port {number} of {host}: {error.strerror or error}",
                    hint="--port 0 takes any free port; --host 127.0.0.1 is this machine alone, "
                    "0.0.0.0 every network it is in",
                ) from error
            return

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Where a browser of this machine finds it; by this machine's name, if others can too."""
        every = ipaddress.ip_address(str(self.server_address[0])).is_unspecified
        host = socket.gethostname() if every else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def allows(self, host: str) -> bool:
        """Whether a request may name this host."""
        if not self.loopback:
            return True
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.lower() in ("localhost", self.host.lower()):
            return True
        try:
            return ipaddress.ip_address(name.strip("[]")).is_loopback
        except ValueError:
            return False

    def server_bind(self) -> None:
        """Bind without asking a name server for this machine's name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.host, self.port

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Whether there is a place for one more connection; else it is closed."""
        return self._places.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """A reader that disconnects is not an error; anything else is printed as one line."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            print(f"error: {summary_line(error)}", file=sys.stderr)


class Handler(BaseHTTPRequestHandler):
    """GET and HEAD of the page, of its state, and of its metrics."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = _SECONDS
    server_version = "batchscale"
    sys_version = ""

    def do_GET(self) -> None:
        """The page, its state, its metrics, or what is wrong with the request."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not self.server.allows(hosts[0]):
            return self._plain(HTTPStatus.FORBIDDEN, "requests for this host are refused")
        path = self.path.partition("?")[0]
        if path == "/":
            return self._answer(self.server.content.page)
        if path == STATE:
            return self._answer(self.server.content.state)
        if path == METRICS:
            return self._answer(self.server.content.metrics)
        return self._plain(HTTPStatus.NOT_FOUND, "there is /, /state.json and /metrics")

    do_HEAD = do_GET  # noqa: N815

    def _refuse(self) -> None:
        self._plain(HTTPStatus.METHOD_NOT_ALLOWED, "this page is read-only", Allow="GET, HEAD")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _answer(self, answer: Answer) -> None:
        tags = [tag.strip() for tag in self.headers.get("If-None-Match", "").split(",")]
        if answer.tag in tags:
            return self._send(HTTPStatus.NOT_MODIFIED, b"", {"ETag": answer.tag})
        headers = {"Content-Type": answer.kind, "ETag": answer.tag}
        return self._send(HTTPStatus.OK, answer.body, headers)

    def _plain(self, status: HTTPStatus, text: str, **headers: str) -> None:
        # The rest of a refused request is not read: the connection ends.
        self.close_connection = True
        headers = {"Content-Type": "text/plain; charset=utf-8", "Connection": "close", **headers}
        self._send(status, f"{text}\n".encode(), headers)

    def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**_headers(), **headers}.items():
            self.send_header(name, value)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


def _address(host: str) -> tuple[socket.AddressFamily, str]:
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise CommandError(
            f"--host {host} is not an address of this machine",
            hint="127.0.0.1 for this machine alone, 0.0.0.0 for every network it is in",
        ) from None
    family, _, _, _, address = addresses[0]
    return family, str(address[0])
