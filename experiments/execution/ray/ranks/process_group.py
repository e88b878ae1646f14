"""The process group of a worker group: NCCL between GPUs, Gloo between CPUs."""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist

from experiments.parallel.composed import forget_meshes
from experiments.parallel.ranks import LOOPBACK
from experiments.parallel.renewal import leave
from experiments.scheduling.messages import Cause

_CONNECT_SECONDS = 120.0
"""Timeout of the ranks' first contact."""
_CHOSEN_BY_USER = os.environ.get("GLOO_SOCKET_IFNAME")
_SIOCGIFADDR = 0x8915
_LEFT = (
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "Application timeout caused pair closure",
    "Broken pipe",
    "NCCL",
)
"""Parts of the messages with which collective operations fail when another rank leaves."""
_WAITED = ("Timed out waiting", "timed out after", "Wait timeout", "Socket Timeout")


def open_store(address: str) -> dist.TCPStore:
    """The store at which the ranks meet; rank 0 holds it. It listens at ``address`` alone."""
    listener = socket.create_server((address, 0))
    port = listener.getsockname()[1]
    return dist.TCPStore(
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=_CONNECT_SECONDS),
        master_listen_fd=listener.detach(),
    )


def reach_store(address: str, port: int) -> dist.TCPStore:
    """The store of another rank.

    Raises:
        torch.distributed.DistError: it does not answer.
    """
    timeout = timedelta(seconds=_CONNECT_SECONDS)
    return dist.TCPStore(address, port, is_master=False, timeout=timeout)


def join(
    store: dist.Store, rank: int, size: int, *, address: str, gpu: str | None, timeout: float
) -> None:
    """Become a rank of the default process group.

    Args:
        address: of this machine, as the other ranks reach it; the loopback address if all are here.
        gpu: the rank's device, which it has for itself; ``None``: a CPU, or a part of a GPU.
        timeout: seconds that an operation may wait for the other ranks.
    """
    leave()
    if _CHOSEN_BY_USER is None:
        os.environ.pop("GLOO_SOCKET_IFNAME", None)
        if name := interface(address):
            os.environ["GLOO_SOCKET_IFNAME"] = name
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if gpu else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
    )


def close_subgroups() -> None:
    """Close the process groups that a layout has made for a pack, all but the default one."""
    forget_meshes()  # the next pack makes its own
    for group in list(dist.distributed_c10d._world.pg_map):
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)


def classify(error: BaseException) -> Cause | None:
    """What an exception of a rank says of the others: ``lost``, one has left a collective
    operation; ``hung``, this rank has waited too long for one; ``None``, it is its own code's."""
    reason: BaseException | None = error
    while reason is not None:
        text = str(reason)
        if isinstance(reason, dist.DistError) or (
            isinstance(reason, RuntimeError) and any(part in text for part in (*_LEFT, *_WAITED))
        ):
            return "hung" if any(part in text for part in _WAITED) else "lost"
        reason = reason.__cause__ or reason.__context__
    return None


def interface(address: str) -> str | None:
    """The network interface with an IPv4 address; ``None`` where that cannot be read."""
    if address == LOOPBACK and sys.platform == "darwin":
        return "lo0"
    if sys.platform != "linux":
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                request = struct.pack("256s", name.encode()[:15])
                if socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24]) == address:
                    return name
    return None
