"""Normal numbers by counting are those of torch's arithmetic, however they are computed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from experiments.counter_random import hashes, normal

LOWER = 2**24 - 1


def by_torch(key: Tensor, first: int, like: Tensor) -> Tensor:
    """The slow twin: in one piece, by torch alone."""
    z = hashes(key, first, like.shape)
    angle = (z & LOWER).to(like.dtype).mul_(2 * math.pi * 2.0**-24).cos_()
    radius = ((z >> 40) & LOWER).to(like.dtype).add_(0.5).mul_(2.0**-24).log_().mul_(-2).sqrt_()
    return radius.mul_(angle)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (4_810,), (2**15 + 7,)])
def test_normal_numbers_are_the_same_to_the_last_bit(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    keys = torch.randint(-(2**62), 2**62, (9,), generator=torch.Generator().manual_seed(0))
    like = torch.empty(shape, dtype=dtype)
    expected = torch.stack([by_torch(key, 3, like) for key in keys])
    assert torch.stack([normal(key, 3, like) for key in keys]).equal(expected)
    of_all = vmap(lambda key: normal(key, 3, like))(keys)
    assert of_all.equal(expected)
    assert of_all.dtype == dtype
