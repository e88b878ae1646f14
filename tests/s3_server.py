"""A real S3 server on this machine, SeaweedFS, and a door before it that can be shut."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

KEYS = ("TESTKEY", "TESTSECRET")
PATIENCE = 120.0
"""Seconds that its start may take on a machine that does other things too."""


def program() -> str | None:
    """The server's program, ``None`` where it is not installed."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """Its port on loopback, once it answers; it ends with the context."""
    command = program()
    assert command is not None
    key, secret = KEYS
    (folder / "data").mkdir(parents=True)
    identity = {
        "name": "test",
        "credentials": [{"accessKey": key, "secretKey": secret}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    master, volume, filer, port = _free_ports(4)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                command, "-logtostderr=true", "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1", f"-master.port={master}", f"-volume.port={volume}", "-filer",
                f"-filer.port={filer}", "-s3", f"-s3.port={port}",
                f"-s3.config={folder / 's3.json'}", "-volume.max=4",
                "-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0", "-s3.port.lance=0",
            ],
            stdout=log,
            stderr=log,
        )  # fmt: skip
    try:
        end = time.monotonic() + PATIENCE
        while not _bucket_made(port):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.2)
        yield port
    finally:
        process.kill()  # its data go with the folder
        process.wait()


def address(port: int, folder: str) -> str:
    """The URI of a folder of the server's bucket."""
    key, secret = KEYS
    options = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    return f"s3://{key}:{secret}@bucket/{folder}?{options}"


def _bucket_made(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        uri = address(port, "") + "&allow_bucket_creation=true"
        filesystem, _ = fs.FileSystem.from_uri(uri)
        filesystem.create_dir("bucket")
        return True
    return False


def _free_ports(count: int) -> list[int]:
    """Ports that are free, and so are those 10,000 above, where SeaweedFS also listens."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            second = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError, OverflowError):
                if port + 10_000 < 65_536:
                    second.bind(("127.0.0.1", port + 10_000))
                    ports.append(port)
    return ports


class Door:
    """Forwards connections to a port, and refuses them while it is shut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open: list[socket.socket] = []
        self._listening = self._listen(0)
        self.port = self._listening.getsockname()[1]

    def shut(self) -> None:
        """Close what is open, and refuse what comes."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def reopen(self) -> None:
        """Forward again."""
        self._listening = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(64)
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()
        return listening

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                here, _ = listening.accept()
                there = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            self._open += [here, there]
            for ends in ((here, there), (there, here)):
                threading.Thread(target=_forward, args=ends, daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
