"""Connecting to a Ray, on this machine or elsewhere."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from experiments.errors import ExperimentError
from experiments.execution.ray.start import (
    ENVIRONMENT,
    LocalRay,
    cannot,
    import_ray,
    probe,
)
from experiments.execution.staging import Staged
from results.run_state import processes


@dataclass(frozen=True, kw_only=True)
class RaySession:
    """A connected Ray."""

    single_machine: bool
    """Whether all its nodes are this machine: then workers can write where the driver does."""
    processes: tuple[Mapping[str, Any], ...]
    """The driver and the processes that it started, as they are written into claims."""


@contextmanager
def session(address: str, staged: Staged, local: LocalRay | None = None) -> Iterator[RaySession]:
    """Connect to the Ray at ``address``: ``HOST:PORT``, or ``auto`` to find or start one.

    A Ray that this process is connected to already is used, and left as it is. What is found at
    ``auto`` is one that ``RAY_ADDRESS`` names or that ``ray start`` started here.

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
        probe(address)
    ray = import_ray("train", "tune")
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
        yield RaySession(
            single_machine=all(node["NodeID"] == here for node in nodes),
            processes=_processes(ray, ours),
        )
    finally:
        if not connected:
            ray.shutdown()


def _connect(ray: ModuleType, address: str, staged: Staged, *, by_name: bool) -> None:
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
        raise cannot(f"use the Ray at {address}", error) from error


def _processes(ray: ModuleType, ours: bool) -> tuple[Mapping[str, Any], ...]:
    """The driver, then the processes of the Ray that it started, if any."""
    listed = [{**processes.identify(), "role": "driver"}]
    node = getattr(ray._private.worker, "_global_node", None)
    if ours and node is not None:
        for role, infos in node.all_processes.items():
            listed += [{**processes.identify(info.process.pid), "role": role} for info in infos]
    return tuple(listed)
