"""How the data ranks of a model sum its gradient otherwise than exactly."""

from __future__ import annotations

import abc
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Communication(abc.ABC):
    """A communication hook of ``torch.nn.parallel.DistributedDataParallel`` for one model, which
    sums gradients over the data ranks otherwise than exactly."""

    technique: str
    """The technique that makes it."""

    @abc.abstractmethod
    def join(self, group: dist.ProcessGroup | None) -> None:
        """Take part in a group of data ranks; ``None``: all."""

    @abc.abstractmethod
    def hook(
        self, group: dist.ProcessGroup | None, bucket: dist.GradBucket
    ) -> torch.futures.Future[Tensor]:
        """The sum of a bucket of gradients over the ranks, once it is there."""

    def state(self) -> dict[str, Any]:
        """What the hook keeps from step to step, of all ranks, equal on every rank."""
        return {}

    def load(self, state: dict[str, Any]) -> None:  # noqa: B027 - a hook
        """Continue from ``state``; from an empty one as before the first step."""
