"""Which part of each tensor of a model a rank holds, and how whole tensors are made of the parts.

A tensor is cut at most twice: along one dimension over the tensor ranks, and the part along its
first dimension over the shard ranks, in the pieces of ``torch.chunk`` (as FSDP has it: the last
ones may be smaller, or empty).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from experiments.parallel.ranks import SOLO, Ranks, TorchRanks
from experiments.parallel.stages.stages import Stages


@dataclass(frozen=True, kw_only=True)
class Piece:
    """How a tensor is cut."""

    dim: int | None = None
    """The dimension that is cut over the tensor ranks."""
    parts: int = 1
    """Equal parts that lie side by side along it, each of which is cut."""
    sharded: bool = False
    """Whether the rest is cut over the shard ranks."""

    @property
    def is_cut(self) -> bool:
        """Whether a rank holds less than the whole tensor."""
        return self.dim is not None or self.sharded


_WHOLE = Piece()


class Pieces:
    """The pieces of a model's parameters and buffers, by name."""

    def __init__(self, model: nn.Module, tensor: Ranks = SOLO, shard: Ranks = SOLO) -> None:
        """
        Args:
            model: whole, before anything is cut.
            tensor, shard: the ranks among which this rank is in each of the two.
        """
        self.tensor, self.shard = tensor, shard
        tensors = itertools.chain(model.named_parameters(), model.named_buffers())
        self.shapes = {name: each.shape for name, each in tensors}
        self._pieces: dict[str, Piece] = {}
        self.stages: Stages | None = None
        """Which tensors each pipeline rank has, where there is a pipeline."""

    def __getitem__(self, name: str) -> Piece:
        return self._pieces.get(name, _WHOLE)

    def cut(self, name: str, dim: int, parts: int = 1) -> None:
        """Note that a tensor is cut over the tensor ranks."""
        self._pieces[name] = Piece(dim=dim, parts=parts)

    def note_shards(self, names: Mapping[str, Tensor]) -> None:
        """Note that these are cut over the shard ranks."""
        for name in names:
            self._pieces[name] = replace(self[name], sharded=True)

    def part(self, name: str, whole: Tensor) -> Tensor:
        """What this rank holds of a whole tensor."""
        piece, part = self[name], whole
        if piece.dim is not None:
            part = tensor_part(part, piece.dim, piece.parts, self.tensor)
        if piece.sharded:
            part = _chunk(part, self.shard.size, self.shard.rank)
        return part

    def gather(self, name: str, part: Tensor) -> Tensor:
        """The whole tensor from the parts of all ranks; ``part`` itself if it is not cut."""
        piece, tensor = self[name], self.tensor.size
        if piece.sharded:
            rows = self.shapes[name][0] // (tensor if piece.dim == 0 else 1)
            sizes = [
                len(_chunk(torch.empty(rows, 0), self.shard.size, i))
                for i in range(self.shard.size)
            ]
            padded = part.new_zeros(sizes[0], *part.shape[1:])
            padded[: len(part)] = part
            chunks = _all_gather(padded, self.shard)
            part = torch.cat([c[:size] for c, size in zip(chunks, sizes, strict=True)])
        if piece.dim is not None:
            chunks = [
                c.unflatten(piece.dim, (piece.parts, -1)) for c in _all_gather(part, self.tensor)
            ]
            part = torch.cat(chunks, piece.dim + 1).flatten(piece.dim, piece.dim + 1)
        return part


def is_distributed(tensor: Tensor) -> bool:
    """Whether it is a DTensor; torch's module of them takes a second to import."""
    return hasattr(tensor, "to_local")


def local(tensor: Tensor) -> Tensor:
    """This rank's entries, in the same memory."""
    if not is_distributed(tensor):
        return tensor
    with torch.no_grad():
        part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return part


def tensor_part(
    whole: Tensor, dim: int, parts: int, ranks: Ranks, rank: int | None = None
) -> Tensor:
    """A rank's share of each of the equal parts along ``dim``."""
    shares = whole.unflatten(dim, (parts, -1)).chunk(ranks.size, dim + 1)
    return shares[ranks.rank if rank is None else rank].flatten(dim, dim + 1)


def _chunk(tensor: Tensor, count: int, index: int) -> Tensor:
    chunks = tensor.chunk(count)
    return chunks[index] if index < len(chunks) else tensor[:0]


def _all_gather(part: Tensor, ranks: Ranks) -> list[Tensor]:
    if not isinstance(ranks, TorchRanks):
        return [part]
    part = part.contiguous()
    parts = [torch.empty_like(part) for _ in range(ranks.size)]
    dist.all_gather(parts, part, group=ranks.group)
    return parts
