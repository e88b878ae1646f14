"""The processes that train a pack together: a single one, or a ``torch.distributed`` group."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

LOOPBACK = "127.0.0.1"


class Ranks(Protocol):
    """Every rank calls the same methods in the same order."""

    rank: int
    size: int
    address: str
    """Of this rank's machine, as the others reach it."""

    def all_reduce_(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor`` over the ranks, in place."""

    def agree(self, value: Any) -> Any:
        """Rank 0's ``value``, on every rank."""


class SingleRank:
    """One process."""

    rank = 0
    size = 1
    address = LOOPBACK

    def all_reduce_(self, tensor: Tensor) -> Tensor:
        return tensor

    def agree(self, value: Any) -> Any:
        return value


SOLO = SingleRank()


class UnconnectedRank(SingleRank):
    """A rank of a group that takes its share and does not communicate, to try something."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


class TorchRanks:
    """A process group, by default the whole one: NCCL on GPUs, Gloo on CPUs. It must be
    initialized."""

    def __init__(
        self, device: str = "cpu", group: dist.ProcessGroup | None = None, address: str = LOOPBACK
    ) -> None:
        self.group, self.address = group, address
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.device = torch.device(device)

    def all_reduce_(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor, group=self.group)
        return tensor

    def agree(self, value: Any) -> Any:
        values = [value]
        dist.broadcast_object_list(values, group=self.group, group_src=0, device=self.device)
        return values[0]
