"""A function on several ranks of this machine: a process each, for as long as it takes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from experiments.errors import ExperimentError
from experiments.parallel.ranks import TorchRanks
from experiments.training.threads import use_single_thread
from results.errors import ClearError
from workloads.errors import WorkloadError


def most_ranks(device: str) -> int:
    """How many ranks this machine has cores or GPUs for."""
    return torch.cuda.device_count() if device == "cuda" else os.cpu_count() or 1


def on_local_ranks(workers: int, device: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What ``function(ranks, device, *arguments)`` returns on the first of ``workers`` ranks, as
    JSON has it. It is called on all of them, and is of a module, as pickle asks.

    Raises:
        ExperimentError: a clear error that it has raised.
    """
    with tempfile.TemporaryDirectory() as folder:
        started = (workers, device, folder, function, arguments)
        mp.start_processes(_rank, started, nprocs=workers, start_method="spawn")
        made: dict[str, Any] = json.loads(Path(folder, "returned.json").read_text())
    if "error" in made:
        raise ExperimentError(made["error"], hint=made["hint"])
    return made["returned"]


def _rank(
    rank: int, size: int, device: str, folder: str, function: Callable[..., Any], arguments: Any
) -> None:
    use_single_thread()
    here = f"{device}:{rank}" if device == "cuda" else device
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
        store=dist.FileStore(f"{folder}/store", size),
        rank=rank,
        world_size=size,
    )
    made: dict[str, Any]
    try:
        made = {"returned": function(TorchRanks(here), here, *arguments)}
    except (ClearError, WorkloadError) as error:
        made = {"error": str(error), "hint": error.hint}
    if rank == 0:
        Path(folder, "returned.json").write_text(json.dumps(made))
    dist.barrier()
    dist.destroy_process_group()
