"""The twin of a CUDA graph on a CPU: the operations of torch, recorded with their memory.

What a graph cannot hold, it refuses as a GPU does, and what would go wrong there goes wrong here:

- While it is recorded nothing is executed: what was written is put back.
- Numbers of Python's, and which operations there are, stay as they were.
- Reading a number on the host is an error, and so are shapes that depend on numbers, tensors made
  of Python's numbers (on a GPU a copy from memory that may be gone), and torch's random numbers.
- Memory that was taken while it was recorded belongs to all graphs: it is filled with rubbish after
  each replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from experiments.engines.capture.rules import check


class RecordedGraph:
    """``Graph`` on a CPU."""

    made: int = 0
    """How many were recorded in this process."""
    replays: int = 0

    def __init__(self, device: torch.device) -> None:
        assert device.type == "cpu"
        self.operations: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self.fresh: dict[int, Tensor] = {}

    def record(self, work: Callable[[], None]) -> None:
        """See ``Graph``."""
        recorder = _Recorder(self)
        try:
            with recorder:
                work()
        finally:
            for storage, before in recorder.before.values():
                storage.copy_(before)
            self._spoil()
        RecordedGraph.made += 1

    def replay(self) -> None:
        """See ``Graph``."""
        with torch.no_grad():
            for function, args, kwargs, results in self.operations:
                given = tree_flatten(function(*args, **kwargs))[0]
                for kept, value in zip(results, given, strict=True):
                    if kept is not None:
                        kept.copy_(value)
        self._spoil()
        RecordedGraph.replays += 1

    def _spoil(self) -> None:
        for tensor in self.fresh.values():
            storage = tensor.untyped_storage()
            storage.copy_(
                torch.full((storage.nbytes(),), 0xFF, dtype=torch.uint8).untyped_storage()
            )


class _Recorder(TorchDispatchMode):
    def __init__(self, graph: RecordedGraph) -> None:
        super().__init__()
        self.graph = graph
        self.before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        """What memory from outside held, by its address."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        check(func, args, kwargs)
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        for tensor in given:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.graph.fresh:
                self.before.setdefault(storage.data_ptr(), (storage, storage.clone()))
        result = func(*args, **kwargs)
        known = {x.untyped_storage().data_ptr() for x in given}
        kept: list[Any] = []
        for value in tree_flatten(result)[0]:
            is_new = isinstance(value, Tensor) and value.untyped_storage().data_ptr() not in known
            kept.append(value.detach() if is_new else None)
            if is_new:
                self.graph.fresh.setdefault(value.untyped_storage().data_ptr(), kept[-1])
        held = _detached(args), _detached(kwargs)
        self.graph.operations.append((func, *held, kept))
        return result


def _detached(values: Any) -> Any:
    return torch.utils._pytree.tree_map_only(Tensor, lambda x: x.detach(), values)
