"""Several workers a pack: Ray Train inside a Tune function, one worker group a pack.

The group is never stopped from outside: a Train driver that Tune stops leaks its placement group.
It ends by itself, since every rank gets a stop inside its training loop.
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

from experiments.execution.ray.demand import worker_resources
from experiments.execution.ray.mailbox import channel
from experiments.execution.ray.worker import WorkerContext, guarded, summary
from experiments.execution.worker import run_pack
from experiments.parallel.ranks import TorchRanks
from experiments.scheduling.jobs import PackEnd

_TIMEOUT_SECONDS = 600
"""Timeout of a collective: longer than any evaluation for which a rank may have to wait."""


def train_group(config: dict[str, Any], context: WorkerContext) -> None:
    """The Tune function of a worker group: starts it, waits, and reports what it committed."""
    pack = config["pack"]
    layout = context.layout
    gpu = layout.gpus_per_worker > 0
    with tempfile.TemporaryDirectory(prefix="batchscale-train-") as folder:
        trainer = TorchTrainer(
            _rank,
            train_loop_config={"pack": pack, "context": context},
            scaling_config=train.ScalingConfig(
                num_workers=layout.workers,
                use_gpu=gpu,
                resources_per_worker=worker_resources(layout),
            ),
            torch_config=TorchConfig(backend="nccl" if gpu else "gloo", timeout_s=_TIMEOUT_SECONDS),
            run_config=train.RunConfig(name=f"{pack}-{uuid.uuid4().hex[:8]}", storage_path=folder),
        )
        # Rank 0 sends what a rank's own code raises; this raises when a worker dies.
        trainer.fit()
    tune.report(summary(ray.get(context.mailbox.committed.remote(pack))))


def _rank(config: dict[str, Any]) -> None:
    """What every rank runs. ``get_device`` is its own GPU, or the CPU."""
    context: WorkerContext = config["context"]
    torch.set_num_threads(1)
    device = str(get_device())
    line, group, pack = channel(context.mailbox), TorchRanks(device), config["pack"]

    def send(end: PackEnd) -> None:
        if group.rank == 0:
            line.send(replace(end, failure=line.control(pack).failure or end.failure))

    end = guarded(
        pack,
        send,
        lambda: run_pack(
            replace(context.job(pack), device=device),
            context.ledger(),
            line,
            group=group,
            trainer=context.trainer,
            pace=context.pace,
        ),
    )
    if end.end == "failed":
        if group.rank:  # rank 0 reports; it would see only that this rank has left
            ray.get(context.mailbox.blame.remote(pack, end.failure))
        dist.destroy_process_group()  # the others must not wait for this rank
