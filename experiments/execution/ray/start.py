"""Connecting to a Ray: at an address, one that runs on this machine, or a new one."""

from __future__ import annotations

import importlib
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from experiments.errors import ExperimentError
from experiments.execution.process_end import end_without_cluster
from experiments.execution.ray.head import watching_head
from experiments.execution.ray.owner import read_own
from experiments.execution.ray.token import private_token, reload_token
from experiments.execution.staging import Staged
from experiments.training.threads import KEPT
from results.run_state import processes

_PROBE_SECONDS = 3.0
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_OBJECT_STORE_BYTES = 256 * 2**20
"""Jobs and messages are small, and data sets are loaded by each worker itself."""

_LOGS = {"RAY_ROTATION_MAX_BYTES": str(16 * 2**20), "RAY_ROTATION_BACKUP_COUNT": "1"}
"""Of what each process of our Ray prints, 32 MiB are kept: trials may print without end."""

ENVIRONMENT: Mapping[str, str] = {
    # As ``training.threads`` has it, from the start of a process and in all of its threads.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(KEPT),
    "OMP_NUM_THREADS": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Our searcher decides how many packs are out; Tune would start one worker after the other.
    "TUNE_MAX_PENDING_TRIALS_PG": "1000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
"""Environment of the driver and the workers; variables that the driver has already are kept."""


def import_ray(*parts: str) -> ModuleType:
    """Ray, with the ``parts`` of it that are needed, or a clear error where they are not installed.

    Raises:
        ExperimentError: it cannot be imported.
    """
    for name, value in ENVIRONMENT.items():
        if name.startswith(("RAY_", "TUNE_")):
            os.environ.setdefault(name, value)
    try:
        ray = importlib.import_module("ray")
        for part in parts:
            importlib.import_module(f"ray.{part}")
    except ImportError as error:
        raise ExperimentError(
            f"Ray cannot be imported: {error}",
            hint="pip install 'ray[default,tune,train]', or run without it: --address none",
        ) from None
    return ray


RAY_THREAD = "ray"
"""The thread that holds our Ray, while there is one."""
_ray_lock = threading.Lock()
"""Held from the start of our Ray to its end, since a process can have only one."""


class LocalRay:
    """The Ray of a sweep whose address is ``auto``: found, or started on this machine.

    It starts in the background, since most of the five seconds are spent waiting. Its processes
    die with the thread that has started them (``PR_SET_PDEATHSIG``): that stays until the end.
    """

    def __init__(self, num_cpus: int | None = None, *, after: float = 0.0) -> None:
        """``after``: seconds before it starts, unless somebody waits for it sooner."""
        self.num_cpus, self._after = num_cpus, after
        self.address: str | None = None
        """Address of a running Ray that is to be shared."""
        self.ours = False
        self.note: str | None = None
        """Why a Ray that runs here is not shared."""
        self._error: Exception | None = None
        self._decided, self._over = threading.Event(), threading.Event()
        self._needed = threading.Event()
        self._thread = threading.Thread(target=self._hold, name=RAY_THREAD)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Do not wait for a Ray that is not needed any more: all is trained, or an error came.
        self.end(wait=self.decided)

    @property
    def decided(self) -> bool:
        """Whether it was found or started, or failed to."""
        return self._decided.is_set()

    def wait(self, over: Callable[[], bool] = lambda: False) -> bool:
        """Wait until it is found or started, or ``over()``; whether it is.

        Raises:
            ExperimentError: it cannot be.
        """
        self._needed.set()
        while not self._decided.wait(0.2):
            if over():
                return False
        if self._error is not None:
            raise self._error
        return True

    def end(self, *, wait: bool = True) -> None:
        """End what was started. Without ``wait`` that goes on in the background."""
        self._over.set()
        self._needed.set()
        if wait:
            self._thread.join()

    def _hold(self) -> None:
        self._needed.wait(self._after)
        if self._over.is_set():  # all has been trained, or an error came
            self._decided.set()
            return
        with _ray_lock:
            self._find_or_start()
            if self.ours:
                # The end of the program counts too: it joins its threads before Ray is shut down.
                while not self._over.wait(0.5) and threading.main_thread().is_alive():
                    pass
                import_ray().shutdown()
                reload_token()

    def _find_or_start(self) -> None:
        try:
            ray = import_ray()
            if not ray.is_initialized():
                self.address, self.note = _find()
            if not ray.is_initialized() and self.address is None and not self._over.is_set():
                _start(ray, self.num_cpus)
                self.ours = True
        except Exception as error:  # raised in the sweep, which waits for it
            self._error = error
        finally:
            self._decided.set()


def _start(ray: ModuleType, num_cpus: int | None) -> None:
    """Start a Ray of this machine's processors.

    Its workers get no runtime environment, which takes Ray seconds to make: they inherit that of
    this process. Neither do they look for modules in the current folder, where a ``results/`` or
    ``experiments/`` would hide ours. Warnings are not silenced: their filters are the whole
    process's, and other threads go on meanwhile.
    """
    environment = {**ENVIRONMENT, **_LOGS, "RAY_worker_niceness": "0"}
    del environment["OMP_NUM_THREADS"]  # Ray sets it, and here it would bind the driver's torch
    # A later sweep ends what this one leaves running if it is killed, and nothing else.
    _silence(ray)
    try:
        with (
            processes.leaving_mark(),
            _inherited(environment),
            private_token(),
            _on_loopback(ray._private.ray_constants),
        ):
            ray.init(
                address="local",
                num_cpus=num_cpus,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level="ERROR",
                job_config=ray.job_config.JobConfig(_client_job=True),
                _node_ip_address="127.0.0.1",
            )
    except Exception as error:
        raise _cannot("start a Ray on this machine", error) from error


@contextmanager
def _on_loopback(constants: ModuleType) -> Iterator[None]:
    """A Ray that starts inside listens on the loopback interface alone.

    Ray takes another address of the machine in the place of 127.0.0.1, unless it says that there
    can be only one machine, as on macOS (``RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER``, which it reads when
    it is imported).
    """
    before = getattr(constants, "ENABLE_RAY_CLUSTER", None)
    constants.ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before  # type: ignore[attr-defined]


def _silence(ray: ModuleType) -> None:
    """Keep Ray's thread from printing on this program's output what happens to other nodes, a
    screen of it. What concerns the sweep is said by the sweep."""
    worker = ray._private.worker
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


def _cannot(what: str, error: Exception) -> ExperimentError:
    """The error about a Ray that does not answer as expected."""
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ExperimentError(
        f"cannot {what}: {line}",
        hint="both sides need the same Ray, Python and RAY_AUTH_MODE (token, where it was "
        "started with one); --address none runs without Ray",
    )


@contextmanager
def _inherited(environment: Mapping[str, str]) -> Iterator[None]:
    """Set these variables for processes that start inside, unless they are set already."""
    added = [name for name in environment if name not in os.environ]
    os.environ.update({name: environment[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _find() -> tuple[str | None, str | None]:
    """The address of a Ray that is meant to be shared, if it answers; a note if it is not used
    because it is another user's."""
    named = os.environ.get("RAY_ADDRESS")
    if named and named != "auto":
        if not named.startswith(("ray://", "http")) and named != "local":
            _probe(named)
            return named, None
        return None, None
    import ray._private.utils

    place = getattr(ray._private.utils, "get_ray_address_file", None)
    address, note = read_own(Path(place(None))) if place else (None, None)
    try:
        if address is not None:
            _probe(address)
    except ExperimentError:
        address = None
    return address, note


def _probe(address: str) -> None:
    """Refuse an address where no Ray is. Ray itself would wait there for ever.

    What a Ray listens with is gRPC: it answers the opening of HTTP/2 (RFC 9113, 3.4) with its
    settings, a frame of type 4. Over TLS that cannot be seen from outside.
    """
    host, _, port = address.rpartition(":")
    hint = "HOST:PORT of a running Ray (ray start --head prints it), auto, or none"
    if not host or not port.isdigit() or int(port) > 65535:
        raise ExperimentError(f"address {address!r} is not HOST:PORT", hint=hint)
    try:
        line = socket.create_connection((host, int(port)), timeout=_PROBE_SECONDS)
    except OSError as error:
        raise ExperimentError(
            f"nothing answers at {address}: {error.strerror or error}", hint=hint
        ) from None
    with line:
        if os.environ.get("RAY_USE_TLS", "0") in ("1", "true"):
            return
        try:
            line.sendall(_HTTP2)
            answer = line.recv(4)
        except OSError:
            answer = b""
    if answer[3:] != b"\x04":
        raise ExperimentError(f"what answers at {address} is not Ray", hint=hint)


@dataclass(frozen=True, kw_only=True)
class RaySession:
    """A connected Ray."""

    single_machine: bool
    """Whether all its nodes are this machine: then workers can write where the driver does."""
    processes: tuple[Mapping[str, Any], ...]
    """The driver and the processes that it started, as they are written into claims."""
    note: str | None = None
    """A sentence for the user about the choice of this Ray."""


@contextmanager
def session(address: str, staged: Staged, local: LocalRay | None = None) -> Iterator[RaySession]:
    """Connect to the Ray at ``address``: ``HOST:PORT``, or ``auto`` to find or start one.

    A Ray that this process is connected to already is used, and left as it is. What is found at
    ``auto`` is one that ``RAY_ADDRESS`` names or that ``ray start`` of this user started here.

    Args:
        local: finds or starts it, at ``auto``; the caller ends it.

    Raises:
        ExperimentError: nothing answers there within 3 s, or what answers is no Ray of this
            version; ``ray://``.
    """
    if address.startswith("ray://"):
        raise ExperimentError(
            f"{address}: a driver outside the cluster is not supported",
            hint="ray job submit --address http://HEAD:8265 -- batchscale sweep … --address auto",
        )
    if address != "auto":
        _probe(address)
    ray = import_ray("tune")
    ours = False
    if local is not None and address == "auto":
        local.wait()
        ours, address = local.ours, local.address or address
    connected = ray.is_initialized()
    if not connected:
        _connect(ray, address, staged, by_name=local is None)
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        here = ray.get_runtime_context().get_node_id()
        listed = [{**processes.identify(), "role": "driver"}]
        started = getattr(ray._private.worker, "_global_node", None) if ours else None
        for role, infos in started.all_processes.items() if started else ():
            listed += [{**processes.identify(info.process.pid), "role": role} for info in infos]
        head = ray.get_runtime_context().gcs_address
        named = head if address == "auto" else address
        with watching_head(head, lambda: end_without_cluster(named)):
            yield RaySession(
                single_machine=all(node["NodeID"] == here for node in nodes),
                processes=tuple(listed),
                note=local.note if local is not None else None,
            )
    finally:
        if not connected:
            ray.shutdown()


def _connect(ray: ModuleType, address: str, staged: Staged, *, by_name: bool) -> None:
    _silence(ray)
    # Ray offers its token to a cluster that it finds itself, never to an address that is named.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's about itself
            ray.init(
                address=address if by_name else "auto",
                log_to_driver=False,
                logging_level="ERROR",
                runtime_env={"working_dir": staged.folder, "env_vars": dict(ENVIRONMENT)},
            )
    except Exception as error:
        raise _cannot(f"use the Ray at {address}", error) from error
