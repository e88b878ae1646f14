"""The workers that train a pack together: one alone, or a ``torch.distributed`` process group."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks(Protocol):
    """Every rank calls the same methods in the same order."""

    rank: int
    size: int

    def all_reduce_(self, tensor: Tensor) -> Tensor:
        """Sum ``tensor`` over the ranks, in place."""

    def agree(self, value: Any) -> Any:
        """Rank 0's ``value``, on every rank."""


class SingleRank:
    """A group of one."""

    rank = 0
    size = 1

    def all_reduce_(self, tensor: Tensor) -> Tensor:
        return tensor

    def agree(self, value: Any) -> Any:
        return value


SOLO = SingleRank()


class TorchRanks:
    """The default process group: NCCL on GPUs, Gloo on CPUs. It must be initialized."""

    def __init__(self, device: str = "cpu") -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self.device = torch.device(device)

    def all_reduce_(self, tensor: Tensor) -> Tensor:
        dist.all_reduce(tensor)
        return tensor

    def agree(self, value: Any) -> Any:
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]


def share(batch_size: int, rank: int, size: int, unit: int = 1) -> slice:
    """The part of a global batch that ``rank`` of ``size`` trains.

    Contiguous, as equal as whole units of ``unit`` examples (a ghost batch) allow; a rank beyond
    the number of units gets an empty share.
    """
    units = batch_size // unit
    low, high = units * rank // size, units * (rank + 1) // size
    end = batch_size if rank == size - 1 else high * unit
    return slice(low * unit, end)
