"""Finds a Ray, or starts one on this machine, and ends what it started."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from experiments.driver.staging import Staged
from experiments.errors import ExperimentError
from results import processes

_PROBE_SECONDS = 3.0
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_OBJECT_STORE_BYTES = 256 * 2**20
"""Jobs and words are small, and data sets are loaded by each worker itself."""

ENVIRONMENT: Mapping[str, str] = {
    # Freed activations go back to the system: a worker of the demo holds 1.0 GiB, not 1.5.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(4 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(32 * 2**20),
    "OMP_NUM_THREADS": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
"""Of the driver and of the workers: what is set already in the driver's is left."""


@dataclass(frozen=True, kw_only=True)
class RaySession:
    """A connected Ray."""

    ours: bool
    """Whether it was started here."""
    one_machine: bool
    """Whether all its nodes are this machine: then workers can write where the driver does."""
    processes: tuple[Mapping[str, Any], ...]
    """The driver, and what it started, as they are written into claims."""


def import_ray() -> ModuleType:
    """Ray, or a clear error where it is not installed.

    Raises:
        ExperimentError: it cannot be imported.
    """
    for name, value in ENVIRONMENT.items():
        if name.startswith(("RAY_", "TUNE_")):
            os.environ.setdefault(name, value)
    try:
        import ray
        import ray.train
        import ray.tune
    except ImportError as error:
        raise ExperimentError(
            f"Ray cannot be imported: {error}",
            hint="pip install 'ray[default,tune,train]', or run without it: --address none",
        ) from None
    return ray


@contextmanager
def session(address: str, staged: Staged, num_cpus: int | None = None) -> Iterator[RaySession]:
    """Connect to the Ray at ``address``: ``HOST:PORT``, or ``auto`` to find or start one.

    A Ray that this process is connected to already is used, and left as it is. What is found at
    ``auto`` is one that ``RAY_ADDRESS`` names or that ``ray start`` started here.

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
    ray = import_ray()
    connected = ray.is_initialized()
    ours = False
    if not connected:
        found = address if address != "auto" else _find()
        ours = found is None
        _connect(ray, found, staged, num_cpus, by_name=address != "auto")
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        here = ray.get_runtime_context().get_node_id()
        yield RaySession(
            ours=ours,
            one_machine=all(node["NodeID"] == here for node in nodes),
            processes=_processes(ray, ours),
        )
    finally:
        if not connected:
            ray.shutdown()


def _connect(
    ray: ModuleType, address: str | None, staged: Staged, num_cpus: int | None, *, by_name: bool
) -> None:
    # Ray offers its token to a cluster that it finds itself, never to an address that is named.
    options: dict[str, Any] = {"address": address if by_name else "auto"}
    environment = dict(ENVIRONMENT)
    if address is None:
        if sys.platform == "linux":  # the workers of a group find each other on one machine
            environment["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
        options = {
            "address": "local",
            "num_cpus": num_cpus,
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
            "_node_ip_address": "127.0.0.1",
        }
    # A later sweep ends what this one leaves running if it is killed, and nothing else.
    marked = processes.leaving_mark() if address is None else nullcontext()
    try:
        with warnings.catch_warnings(), marked:
            warnings.simplefilter("ignore")  # Ray's about itself
            ray.init(
                **options,
                log_to_driver=False,
                logging_level="ERROR",
                runtime_env={"working_dir": staged.folder, "env_vars": environment},
            )
    except Exception as error:
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        where = f"the Ray at {address}" if address else "a Ray on this machine"
        raise ExperimentError(
            f"cannot {'use' if address else 'start'} {where}: {line}",
            hint="both sides need the same Ray, Python and RAY_AUTH_MODE (token, where it was "
            "started with one); --address none runs without Ray",
        ) from error


def _find() -> str | None:
    """The address of a Ray that is meant to be shared, if it answers."""
    named = os.environ.get("RAY_ADDRESS")
    if named and named != "auto":
        if not named.startswith(("ray://", "http")) and named != "local":
            _probe(named)
            return named
        return None
    import ray._private.utils

    read = getattr(ray._private.utils, "read_ray_address", None)
    address: str | None = read() if read else None
    if address is None:
        return None
    try:
        _probe(address)
    except ExperimentError:
        return None
    return address


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
        raise ExperimentError(f"what answers at {address} is no Ray", hint=hint)


def _processes(ray: ModuleType, ours: bool) -> tuple[Mapping[str, Any], ...]:
    """The driver first; then, where it started a Ray, that one's processes."""
    found = [{**processes.identify(), "role": "driver"}]
    node = getattr(ray._private.worker, "_global_node", None)
    if ours and node is not None:
        for role, infos in node.all_processes.items():
            found += [{**processes.identify(info.process.pid), "role": role} for info in infos]
    return tuple(found)
