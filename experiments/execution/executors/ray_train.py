"""Several workers a pack: Ray Train inside a Tune function, one worker group a pack.

The group is never stopped from outside: a Train driver that Tune stops leaks its placement group.
It ends by itself, since every rank hears of a stop inside its training loop.
"""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import replace
from typing import Any

import ray
import torch
import torch.distributed as dist
from ray import train, tune
from ray.train.torch import TorchConfig, TorchTrainer, get_device

from experiments.execution.executors.demand import worker_resources
from experiments.execution.executors.mailbox import wire
from experiments.execution.executors.ray_tune import WorkerContext, guarded, summary
from experiments.execution.worker import run_pack
from experiments.parallel.ranks import TorchRanks
from experiments.scheduling.jobs import PackEnd

_TIMEOUT_SECONDS = 600
"""Of a collective: longer than any evaluation that one rank may have to wait for."""


def train_group(config: dict[str, Any], station: WorkerContext) -> None:
    """The Tune function of a worker group: starts it, waits, and reports what it committed."""
    pack = config["pack"]
    layout = station.layout
    gpu = layout.gpus_per_worker > 0
    with tempfile.TemporaryDirectory(prefix="batchscale-train-") as folder:
        trainer = TorchTrainer(
            _rank,
            train_loop_config={"pack": pack, "station": station},
            scaling_config=train.ScalingConfig(
                num_workers=layout.workers,
                use_gpu=gpu,
                resources_per_worker=worker_resources(layout),
            ),
            torch_config=TorchConfig(backend="nccl" if gpu else "gloo", timeout_s=_TIMEOUT_SECONDS),
            run_config=train.RunConfig(name=f"{pack}-{uuid.uuid4().hex[:8]}", storage_path=folder),
        )
        # What a rank's own code raises, rank 0 tells; this raises when a worker dies.
        trainer.fit()
    tune.report(summary(ray.get(station.board.committed.remote(pack))))


def _rank(config: dict[str, Any]) -> None:
    """What every rank runs. ``get_device`` is its own GPU, or the CPU."""
    station: WorkerContext = config["station"]
    torch.set_num_threads(1)
    device = str(get_device())
    line, group, pack = wire(station.board), TorchRanks(device), config["pack"]

    def tell(end: PackEnd) -> None:
        if group.rank == 0:
            line.tell(replace(end, failure=line.asks(pack).failure or end.failure))

    end = guarded(
        pack,
        tell,
        lambda: run_pack(
            replace(station.job(pack), device=device),
            station.ledger(),
            line,
            group=group,
            trainer=station.trainer,
            pace=station.pace,
        ),
    )
    if end.end == "failed":
        if group.rank:  # rank 0 tells, and will only meet that this rank has left
            ray.get(station.board.blame.remote(pack, end.failure))
        dist.destroy_process_group()  # the others must not wait for this rank
