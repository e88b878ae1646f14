"""What all tests share: fixed seeds, one thread for torch, and one Ray for those that need it."""

from __future__ import annotations

import gc
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import hypothesis
import pytest

# The same examples in every run, and no clock: a test that fails here fails everywhere.
hypothesis.settings.register_profile("all", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.register_profile("quick", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("all")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Whoever starts a Ray in these tests, and whoever connects to it, shares a token of this run's own.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(16)
# In the background of a shell SIGINT is ignored, under nohup SIGHUP, and children, to which some
# tests send them, inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

pytest_plugins = ["tests.slow_part"]
_START_SECONDS = 180.0


def pytest_configure(config: pytest.Config) -> None:
    """Where the slow tests run too, the others have all their examples."""
    quick = "not slow" in config.option.markexpr
    hypothesis.settings.load_profile("quick" if quick else "all")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those with a Ray first: of two processes that share the tests, one then needs a Ray."""
    items.sort(key=lambda item: item.get_closest_marker("ray") is None)


def pytest_collection_finish() -> None:
    """The modules and tests, 700,000 objects, live to the end: no collection reads them again.

    One takes half a second with them, and there are hundreds in a run.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # the end of the process frees modules, of which nanobind's complain otherwise


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Files are written without waiting for the disk: no power is cut in a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a user has run is remembered in a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Each test begins with the same state of torch's generator, whatever ran before it."""
    import torch

    torch.manual_seed(0)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Bit-for-bit comparisons need one thread: more of them add in another order."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """HOST:PORT of a Ray of two CPUs that is started once for all tests.

    Each sweep connects to it and leaves.
    """
    with started_ray(2) as address:
        yield address


@pytest.fixture(scope="session")
def start_ray() -> Callable[[int], AbstractContextManager[str]]:
    """Starts a Ray of so many CPUs, for a test of its own."""
    return started_ray


@contextmanager
def started_ray(cpus: int) -> Iterator[str]:
    """HOST:PORT of a Ray that ``ray start`` starts; it is ended by process group, so that another
    Ray of this machine is not touched."""
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        log = Path(folder, "log")
        command = [
            sys.executable,
            "-m",
            "ray.scripts.scripts",
            "start",
            "--head",
            "--block",
            f"--port={port}",
            f"--num-cpus={cpus}",
            "--include-dashboard=false",
            "--no-monitor",
            "--object-store-memory=134217728",
            f"--temp-dir={folder}",
            "--disable-usage-stats",
        ]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            _wait(port, process, log)
            yield f"127.0.0.1:{port}"
        finally:
            _end_group(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while b"started" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > until:
            pytest.fail(f"Ray did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
    socket.create_connection(("127.0.0.1", port), timeout=5).close()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for number, patience in ((signal.SIGTERM, 2), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
