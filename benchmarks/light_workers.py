"""Ray's worker processes as children of one that has imported Ray: they share its memory.

A worker of Ray is a program of its own, which imports Ray and Tune by itself: 2 s of processor time
and 100 MB, so that hundreds of them do not fit on one machine. Here the command by which a raylet
starts a worker is a small one, which asks a server to fork: what the server has imported is in all
of its children, and in memory once. From there on it is Ray's own worker, in a process of its own.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ASK = """\
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    said = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    server.sendmsg(
        [len(said).to_bytes(8, "big")],
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))],
    )
    server.sendall(said)
    server.recv(1)
"""
"""What a raylet starts in the place of a worker."""

MODULES = (
    "ray._private.workers.default_worker",
    "ray.tune.trainable.function_trainable",
    "experiments.execution.ray.mailbox",
    "pydantic.v1",
)
"""What workers import, by themselves and with what is sent to them."""
SINGLE_THREAD = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Of the server: another thread of it, as these libraries start them when they are imported, may
hold a lock in the moment of a fork, and the new process then waits for it for good."""
_OF_ITS_START = ("--language", "--serialized-runtime-env-context")


@contextmanager
def light_workers(folder: Path) -> Iterator[None]:
    """Within, a Ray that this process starts has workers that are forked."""
    from ray._private import services

    address, program = str(folder / "fork.socket"), folder / "worker.py"
    program.write_text(_ASK.format(address=address))
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.light_workers", address],
        env={**os.environ, **SINGLE_THREAD},
    )
    while not os.path.exists(address):
        assert server.poll() is None
        time.sleep(0.1)
    usual = services.start_raylet

    def start_raylet(*args: Any, **kwargs: Any) -> Any:
        from inspect import signature

        given = signature(usual).bind(*args, **kwargs)
        given.arguments["setup_worker_path"] = str(program)
        return usual(*given.args, **given.kwargs)

    services.start_raylet = start_raylet
    try:
        yield
    finally:
        services.start_raylet = usual
        server.terminate()
        server.wait()


def serve(address: str) -> None:
    """Fork a worker for each connection."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address + ".new")
        listening.listen(512)
        os.rename(address + ".new", address)
        while True:
            connection, _ = listening.accept()
            with connection:
                size, files, _, _ = socket.recv_fds(connection, 8, 3)
                data = b""
                while len(data) < int.from_bytes(size, "big"):
                    data += connection.recv(65_536)
                command = json.loads(data)
                if "ray" not in sys.modules:
                    _import_ray(command[1])
                if os.fork() == 0:
                    listening.close()
                    connection.close()
                    _work(command, files)
                for each in files:
                    os.close(each)


def _import_ray(environment: dict[str, str]) -> None:
    """Ray's C++ part reads the environment once: job and raylet are those of all workers."""
    os.environ.update(environment)
    for name in MODULES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection would write to every object, and copy its page


def _work(command: Any, files: list[int]) -> None:
    """Be the worker."""
    arguments, environment, folder = command
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, each in enumerate(files):
        os.dup2(each, number)
        os.close(each)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # The other options are those of Ray's own setup.
    sys.argv = [each for each in arguments if not each.startswith(_OF_ITS_START)]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
