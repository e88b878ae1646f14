"""Ranks that are threads of this process: sums without process groups, for small tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

Result = TypeVar("Result")
_KERNELS = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH)


class ThreadRanks:
    """One rank of a group. Numbers are summed in the order of the ranks."""

    def __init__(self, rank: int, group: list[ThreadRanks], barrier: threading.Barrier) -> None:
        self.rank, self.group, self.barrier = rank, group, barrier
        self.size, self.address = barrier.parties, "127.0.0.1"
        self.given: Any = None

    def all_reduce_(self, tensor: Tensor) -> Tensor:
        self.given = tensor.clone()
        self.barrier.wait(60)
        total = sum(rank.given for rank in self.group)
        self.barrier.wait(60)
        return tensor.copy_(total)

    def agree(self, value: Any) -> Any:
        self.given = value
        self.barrier.wait(60)
        first = self.group[0].given
        self.barrier.wait(60)
        return first


def ranks(size: int) -> list[ThreadRanks]:
    """A group of so many ranks."""
    group: list[ThreadRanks] = []
    barrier = threading.Barrier(size)
    group += [ThreadRanks(rank, group, barrier) for rank in range(size)]
    return group


def together(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """What each rank's call returns; they run at the same time.

    Which attention kernels torch may use is a setting of the process, which ranks in threads set
    back in any order: it is as before when all have ended.
    """
    with sdpa_kernel([*_KERNELS]), ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]
