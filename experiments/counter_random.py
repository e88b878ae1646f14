"""Random numbers by counting: a hash of a key and a place, without any state.

The hash is that of ``workloads.generated.counters``, whose integer arithmetic is exact on every
device. A number that depends on its key and its place alone is the same in a stack of models, after
a pause, and on any number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workloads.generated.counters import MIX, PLACE, mixed

BITS = 24
"""Bits of a uniform number: as many as float32 holds exactly."""


_BLOCK = 2**15
"""Numbers that are mixed at once on a CPU: they and as many again stay in a core's cache."""


def kept(places: Tensor, keys: Tensor, threshold: int, scale: float, dtype: torch.dtype) -> Tensor:
    """``scale`` where the upper 24 bits of a key and a place, hashed, are at least ``threshold``,
    else 0: ``(*keys.shape, *places.shape)``.

    One operation of torch's, so that a traced graph has it as such; under ``vmap`` the keys have
    the models as a dimension more.

    Args:
        places: int64, each times ``PLACE``.
        keys: int64, what is added to each of them.
    """
    mask: Tensor = torch.ops.batchscale.kept(places, keys, threshold, scale, dtype)
    return mask


# Not by ``custom_op``, which calls a function half as slowly again as a small mask takes.
torch.library.define(
    "batchscale::kept",
    "(Tensor places, Tensor keys, int threshold, float scale, ScalarType dtype) -> Tensor",
)


@torch.library.impl("batchscale::kept", "CompositeExplicitAutograd")
def _kept(places: Tensor, keys: Tensor, threshold: int, scale: float, dtype: torch.dtype) -> Tensor:
    if places.device.type == "cpu":
        return _kept_by_blocks(places, keys, threshold, scale, dtype)
    z = mixed(places + keys.view(*keys.shape, *[1] * places.dim()))
    # As unsigned numbers, of which torch compares none.
    least = (threshold << (64 - BITS)) - 2**63
    return (z.bitwise_xor_(-(2**63)) >= least).to(dtype).mul_(scale)


@torch.library.register_fake("batchscale::kept")
def _(places: Tensor, keys: Tensor, threshold: int, scale: float, dtype: torch.dtype) -> Tensor:  # noqa: ARG001
    return torch.empty((*keys.shape, *places.shape), dtype=dtype, device=places.device)


@torch.library.register_vmap("batchscale::kept")
def _(
    info: Any,  # noqa: ARG001
    dims: Sequence[int | None],
    places: Tensor,
    keys: Tensor,
    *others: Any,
) -> tuple[Tensor, int]:
    assert dims[0] is None, "places are those of all models"
    assert dims[1] is not None, "each model has its key"
    return kept(places, keys.movedim(dims[1], 0), *others), 0


def _kept_by_blocks(
    places: Tensor, keys: Tensor, threshold: int, scale: float, dtype: torch.dtype
) -> Tensor:
    """Block by block, whose numbers stay in the cache, and by NumPy, whose integers are unsigned: a
    mask of dropout otherwise costs as much as a small model's step."""
    each = np.float64 if dtype == torch.float64 else np.float32
    of_row, of_rows = (x.reshape(-1).numpy().view(np.uint64) for x in (places, keys))
    result = np.empty((of_rows.size, of_row.size), each)
    least = np.uint64(threshold << (64 - BITS))
    above = np.empty(_BLOCK, "?")
    # The last step of the hash leaves the upper bits as they are.
    for place, z, _ in _blocks(of_row, of_rows):
        is_kept = above[: z.size].reshape(z.shape)
        np.greater_equal(z, least, out=is_kept)
        np.multiply(is_kept, each(scale), out=result[place])
    return torch.from_numpy(result).view(*keys.shape, *places.shape).to(dtype)


def _blocks(of_row: Any, of_rows: Any) -> Iterator[tuple[tuple[slice, slice], Any, Any]]:
    """Each block of the sums of ``of_rows`` and ``of_row``, uint64: its place, its hashes but for
    their last step, and as much memory to use. The next block overwrites both."""
    rows, columns = max(1, _BLOCK // max(of_row.size, 1)), max(1, min(_BLOCK, of_row.size))
    buffers = [np.empty((min(rows, of_rows.size), columns), np.uint64) for _ in range(2)]
    for low in range(0, of_rows.size, rows):
        for left in range(0, of_row.size, columns):
            keys, places = of_rows[low : low + rows, None], of_row[left : left + columns]
            z, shifted = (x[: keys.size, : places.size] for x in buffers)
            np.add(places, keys, out=z)
            for shift, factor in zip((30, 27), MIX, strict=True):
                np.right_shift(z, np.uint64(shift), out=shifted)
                np.bitwise_xor(z, shifted, out=z)
                np.multiply(z, np.uint64(factor % 2**64), out=z)
            yield (slice(low, low + rows), slice(left, left + columns)), z, shifted


def hashes(key: Tensor, first: int, shape: Sequence[int]) -> Tensor:
    """64 random bits for each entry of ``shape``, int64: those of the places from ``first`` on.

    ``key``: an int64 scalar.
    """
    places = torch.arange(first, first + math.prod(shape), device=key.device).view(tuple(shape))
    return mixed(places * PLACE + key)


def uniform(key: Tensor, first: int, like: Tensor) -> Tensor:
    """Uniform numbers in [0, 1), of the shape and type of ``like``."""
    return uniform_of(hashes(key, first, like.shape), like.dtype)


def uniform_of(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """As ``uniform``, of 64 random ``bits`` each."""
    return ((bits >> (64 - BITS)) & (2**BITS - 1)).to(dtype) * 2.0**-BITS


def normal(key: Tensor, first: int, like: Tensor) -> Tensor:
    """Standard normal numbers of the shape and type of ``like``.

    By Box and Muller (1958) from one hash: 24 bits for the radius, 24 others for the angle.
    """
    numbers: Tensor = torch.ops.batchscale.normal(key, first, like.numel(), like.dtype)
    return numbers.view(like.shape)


torch.library.define(
    "batchscale::normal", "(Tensor keys, int first, int count, ScalarType dtype) -> Tensor"
)


@torch.library.impl("batchscale::normal", "CompositeExplicitAutograd")
def _normal(keys: Tensor, first: int, count: int, dtype: torch.dtype) -> Tensor:
    """``(*keys.shape, count)``."""
    places = torch.arange(first, first + count, device=keys.device) * PLACE
    if keys.device.type == "cpu" and dtype in _OF_NUMPY:
        angle, radius = _angles_and_radii(places, keys, dtype)
    else:
        z = mixed(places + keys[..., None])
        angle = (z & _LOWER).to(dtype)
        radius = (z >> (64 - BITS)).bitwise_and_(_LOWER).to(dtype)
    # In place: a new tensor of the size of a stack costs more than what is computed in it.
    angle.mul_(2 * math.pi * 2.0**-BITS).cos_()
    return radius.add_(0.5).mul_(2.0**-BITS).log_().mul_(-2).sqrt_().mul_(angle)


_LOWER = 2**BITS - 1
_OF_NUMPY = (torch.float32, torch.float64)
"""Types of numbers that NumPy has too."""


def _angles_and_radii(places: Tensor, keys: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The lower and the upper 24 bits of each hash, as numbers; block by block, as in ``kept``."""
    of_row, of_rows = (x.reshape(-1).numpy().view(np.uint64) for x in (places, keys))
    # Of torch, whose memory begins where vector registers load it fastest.
    shape = (of_rows.size, of_row.size)
    parts = [torch.empty(shape, dtype=dtype) for _ in range(2)]
    lower, upper = (part.numpy() for part in parts)
    for place, z, shifted in _blocks(of_row, of_rows):
        np.right_shift(z, np.uint64(31), out=shifted)
        np.bitwise_xor(z, shifted, out=z)
        np.bitwise_and(z, np.uint64(_LOWER), out=shifted)
        # As signed numbers, which processors convert faster; these are small.
        np.copyto(lower[place], shifted.view(np.int64), casting="unsafe")
        np.right_shift(z, np.uint64(64 - BITS), out=z)
        np.copyto(upper[place], z.view(np.int64), casting="unsafe")
    angles, radii = (part.view(*keys.shape, *places.shape) for part in parts)
    return angles, radii


@torch.library.register_fake("batchscale::normal")
def _(keys: Tensor, first: int, count: int, dtype: torch.dtype) -> Tensor:  # noqa: ARG001
    return torch.empty((*keys.shape, count), dtype=dtype, device=keys.device)


@torch.library.register_vmap("batchscale::normal")
def _(info: Any, dims: Sequence[int | None], keys: Tensor, *others: Any) -> tuple[Tensor, int]:  # noqa: ARG001
    assert dims[0] is not None, "each model has its key"
    return torch.ops.batchscale.normal(keys.movedim(dims[0], 0), *others), 0
