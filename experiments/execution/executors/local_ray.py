"""Trains packs on this machine's Ray, which is found or started: ``--address auto``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch

from experiments.execution.executors.base import WorkerPool
from experiments.execution.executors.cluster import Cluster
from experiments.execution.executors.in_process import InProcessPool
from experiments.execution.ray.start import LocalRay
from experiments.plan import Layout


class LocalCluster(Cluster):
    """The Ray that runs on this machine, or a new one."""

    name = "auto"

    def __enter__(self) -> Self:
        self.local = LocalRay(self.context.num_cpus)
        return self

    def __exit__(self, *error: Any) -> None:
        if self.local is not None:
            self.local.__exit__(*error)

    @property
    def ready(self) -> bool:
        return self.local is not None and self.local.decided

    def until_ready(self) -> Mapping[Layout, WorkerPool]:
        """The first trials end, in this process, before Ray has a worker.

        Models of a user's files wait for the workers: if they crash, this process must survive.
        """
        if self.context.specs or torch.cuda.is_available():
            return {}
        layouts = self.context.layouts
        small = [each for each in layouts if each.workers == 1 and not each.gpus_per_worker]
        return {layout: InProcessPool(self.context, layout) for layout in small[:1]}
