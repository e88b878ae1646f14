"""Tensors in memory that two processes share, behind a file descriptor that one inherits."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a tensor lies."""

    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, kw_only=True)
class Written:
    """Nested values whose tensors lie in the memory."""

    values: Any
    size: int
    """Bytes of the memory that must be mapped to read them."""


class SharedMemory:
    """One process writes, then the other one reads. It ends with the last process that has it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._bytes = torch.empty(0, dtype=torch.uint8)

    @classmethod
    def new(cls) -> SharedMemory:
        """Memory that no other process has yet."""
        if hasattr(os, "memfd_create"):
            return cls(os.memfd_create("batchscale"))
        with tempfile.TemporaryFile() as file:
            return cls(os.dup(file.fileno()))

    def write(self, values: Any) -> Written:
        """Put the tensors inside nested dicts, lists and tuples into the memory.

        What was written before is overwritten.
        """
        tensors: list[tuple[_Place, Tensor]] = []
        size = 0

        def place(tensor: Tensor) -> _Place:
            nonlocal size
            taken = _Place(offset=size, shape=tuple(tensor.shape), dtype=tensor.dtype)
            size += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
            tensors.append((taken, tensor))
            return taken

        plain = _replaced(values, Tensor, place)
        if size > len(self._bytes):
            size += size // 4  # a pack grows by a few trials at a time
            os.ftruncate(self.descriptor, size)
        self._map(size)
        for taken, tensor in tensors:
            self._at(taken).copy_(tensor)
        return Written(values=plain, size=len(self._bytes))

    def read(self, written: Written) -> Any:
        """The values; their tensors are the memory itself until the next ``write``."""
        self._map(written.size)
        return _replaced(written.values, _Place, self._at)

    def close(self) -> None:
        """Release this process's hold of it."""
        self._bytes = torch.empty(0, dtype=torch.uint8)
        descriptor, self.descriptor = self.descriptor, -1
        os.close(descriptor)

    def _map(self, size: int) -> None:
        if size > len(self._bytes):
            self._bytes = torch.frombuffer(mmap.mmap(self.descriptor, size), dtype=torch.uint8)

    def _at(self, place: _Place) -> Tensor:
        size = place.dtype.itemsize * torch.Size(place.shape).numel()
        return self._bytes[place.offset : place.offset + size].view(place.dtype).view(place.shape)


def _replaced(values: Any, kind: type, by: Callable[[Any], Any]) -> Any:
    """Nested dicts, lists and tuples with everything of ``kind`` in them replaced."""
    if isinstance(values, kind):
        return by(values)
    if isinstance(values, dict):
        return {name: _replaced(value, kind, by) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(_replaced(value, kind, by) for value in values)
    return values
