"""What a layout communicates: counted, as bytes that a rank sends.

A collective over n ranks of a tensor of M bytes (all ranks' entries of one that is gathered or
scattered) has each rank send, by the usual algorithms (Thakur, Rabenseifner & Gropp 2005,
doi:10.1177/1094342005051521): M (n - 1) / n where it is gathered, or reduced and scattered, and
twice as much where all ranks get the sum of it. One that is broadcast reaches n - 1 ranks, each of
which sends M (n - 1) / n in the mean. docs/layouts.md has the formula of each layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import GroupName, _resolve_process_group
from torch.utils._python_dispatch import TorchDispatchMode

_TRIPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1}
"""How often the whole tensor passes, but for a rank's own share."""
_KINDS = {
    "allreduce_": "all_reduce",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "broadcast_": "broadcast",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
}
_SECOND = {"_reduce_scatter_base_", "reduce_scatter_"}
"""Collectives whose first argument is what a rank receives of the whole."""
_SILENT = {"wait_tensor", "_wrap_tensor_autograd", "barrier", "monitored_barrier_"}


class Communication(TorchDispatchMode):
    """``with Communication() as counted: …; counted.bytes``."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: Counter[tuple[str, int]] = Counter()
        """Bytes of the tensors of collectives, by kind and number of ranks."""

    @property
    def bytes(self) -> float:
        """Bytes that a rank sends."""
        return sum(sent(kind, ranks, size) for (kind, ranks), size in self.tensors.items())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # it calls the operations of its parts
        namespace, name = func.namespace, func.overloadpacket.__name__
        if namespace in ("c10d", "_c10d_functional") and name not in _SILENT:
            kind, ranks = _KINDS[name], _ranks(args)
            size = sum(t.nbytes for t in _tensors(args[1 if name in _SECOND else 0]))
            if name == "all_gather_into_tensor":  # of its input, one rank's
                size *= ranks
            self.tensors[kind, ranks] += size
        return func(*args, **(kwargs or {}))


def sent(kind: str, ranks: int, size: float) -> float:
    """Bytes that a rank sends in a collective of a tensor of ``size`` bytes."""
    return _TRIPS[kind] * size * (ranks - 1) / ranks


def _ranks(args: Any) -> int:
    """The size of the group among a collective's arguments."""
    if isinstance(args[-1], str):
        return _resolve_process_group(GroupName(args[-1])).size()
    groups = [each for each in args if isinstance(each, torch.ScriptObject)]
    (group,) = (g for g in groups if "ProcessGroup" in str(g._type()))
    return dist.ProcessGroup.unbox(group).size()


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for each in value for t in _tensors(each)] if isinstance(value, list) else []
