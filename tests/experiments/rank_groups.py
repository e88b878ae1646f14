"""Groups of processes for tests of layouts: one start, many jobs."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from experiments.parallel.ranks import TorchRanks
from tests.forked import METHOD

_TIMEOUT = 1800
"""Seconds; the machine may be busy, and a test asserts what happens, not when."""


def _rank(rank: int, size: int, port: int, job: Any, jobs: Sequence[Any], folder: str) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=_TIMEOUT // 2),
    )
    try:
        results = [job(TorchRanks(), *arguments) for arguments in jobs]
        torch.save(results, f"{folder}/{rank}.pt")
    except Exception:
        Path(folder, f"{rank}.txt").write_text(traceback.format_exc())
        raise
    dist.destroy_process_group()


def on_ranks(
    size: int, job: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], folder: Path
) -> list[list[Any]]:
    """What ``job(ranks, *arguments)`` returns for each of ``jobs``, on each rank.

    A thread of gloo's own may crash its process (once in some hundred groups of torch 2.14, in the
    C library's memory): a sweep then trains that pack again, and here the group is started again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with _one_group():
        try:
            _run(size, job, jobs, folder)
        except mp.ProcessExitedException as error:
            if error.signal_name != "SIGSEGV":
                raise
            _run(size, job, jobs, folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


def _run(size: int, job: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], folder: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    arguments = (size, port, job, jobs, str(folder))
    processes = mp.start_processes(_rank, arguments, nprocs=size, join=False, start_method=METHOD)
    deadline = time.monotonic() + _TIMEOUT
    try:
        while not processes.join(timeout=1):
            assert time.monotonic() < deadline, f"the {size} ranks hang"
    finally:
        for process in processes.processes:
            if process.is_alive():
                process.kill()


@contextmanager
def _one_group() -> Iterator[None]:
    """One group at a time, whichever processes share the tests: its ranks wait for each other in
    every step, and with another group on the same few cores for most of the time."""
    with Path(tempfile.gettempdir(), f"batchscale-tests-ranks-{os.getuid()}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
