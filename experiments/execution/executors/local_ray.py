"""Trains packs on this machine's Ray, which is found or started: ``--address auto``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch

from experiments.execution.executors.base import WorkerPool
from experiments.execution.executors.cluster import Cluster
from experiments.execution.executors.in_process import InProcessPool
from experiments.execution.ray.start import LocalRay
from experiments.plan import Layout

_TEMPORARY = "/tmp"
"""The parent of Ray's temporary folder, where no variable names another."""
_FEW = 256
"""Most missing trials of a sweep that may end before a worker of a new Ray would train."""
_ALONE_SECONDS = 8.0
"""Seconds that such a sweep trains before it starts Ray: about as many as that start takes."""


class LocalCluster(Cluster):
    """The Ray that runs on this machine, or a new one; few trials start none."""

    name = "auto"

    @classmethod
    def expected_device(cls) -> str | None:
        """Not known where a Ray may run already: other machines of it may have GPUs."""
        return None if _may_run() or torch.cuda.is_available() else "cpu"

    def __enter__(self) -> Self:
        context, layouts = self.context, set(self.until_ready())
        few = context.missing <= _FEW and layouts.issuperset(context.layouts)
        alone = few and self.expected_device() == "cpu"  # no Ray runs here that is to be used
        self.local = LocalRay(context.num_cpus, after=_ALONE_SECONDS if alone else 0.0)
        return self

    def __exit__(self, *error: Any) -> None:
        if self.local is not None:
            self.local.__exit__(*error)

    @property
    def ready(self) -> bool:
        return self.local is not None and self.local.decided

    def until_ready(self) -> Mapping[Layout, WorkerPool]:
        """The first trials end, in this process, before Ray has a worker.

        Models of a user's files wait for the workers: if they crash, this process must survive. So
        do all packs where Tune's callbacks are to see them, and programs, which may not go on.
        """
        context = self.context
        waits = context.specs or context.callbacks or context.program
        if waits or torch.cuda.is_available():
            return {}
        layouts = context.layouts
        small = [each for each in layouts if each.workers == 1 and not each.gpus_per_worker]
        return {layout: InProcessPool(context, layout) for layout in small[:1]}


def _may_run() -> bool:
    """Whether a Ray may run on this machine: it writes its address to its temporary folder, which
    depends on variables that may have been set since."""
    parents = [os.environ.get(name, _TEMPORARY) for name in ("RAY_TMPDIR", "TMPDIR")]
    return "RAY_ADDRESS" in os.environ or any(
        Path(parent, "ray", "ray_current_cluster").exists() for parent in [_TEMPORARY, *parents]
    )
