"""What ``layout: auto`` would choose on this machine, for ``--dry-run``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from experiments.errors import ExperimentError
from experiments.parallel.ranks import TorchRanks
from experiments.plan import Pack
from experiments.training.auto_layout.probe import choose
from experiments.training.threads import single_thread, use_single_thread


def local_choices(packs: Sequence[Pack], device: str) -> list[dict[str, Any]] | None:
    """The content of ``layout_choice`` for each pack, all of as many workers, by processes that
    train some steps of each here; ``None``: this machine has too few cores or GPUs for them.

    Raises:
        ExperimentError: nothing fits into the memory.
        WorkloadError: a workload breaks its contract.
    """
    workers = packs[0].study.layout.workers
    present = torch.cuda.device_count() if device == "cuda" else os.cpu_count() or 1
    if workers > present:
        return None
    if workers == 1:
        with single_thread():
            return [choose(pack, device).columns() for pack in packs]
    with tempfile.TemporaryDirectory() as folder:
        arguments = (workers, list(packs), device, folder)
        mp.start_processes(_rank, arguments, nprocs=workers, start_method="spawn")
        made: dict[str, Any] = json.loads(Path(folder, "choices.json").read_text())
    if "error" in made:
        raise ExperimentError(made["error"], hint=made["hint"])
    choices: list[dict[str, Any]] = made["choices"]
    return choices


def _rank(rank: int, size: int, packs: Sequence[Pack], device: str, folder: str) -> None:
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
        ranks = TorchRanks(here)
        made = {"choices": [choose(pack, here, ranks).columns() for pack in packs]}
    except ExperimentError as error:
        made = {"error": str(error), "hint": error.hint}
    if rank == 0:
        Path(folder, "choices.json").write_text(json.dumps(made))
    dist.barrier()
    dist.destroy_process_group()
