"""Random numbers by counting: a hash of a key and a place, without any state.

SplitMix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195), whose integer arithmetic is
exact on every device. A number that depends on its key and its place alone is the same in a stack
of models, after a pause, and on any number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_BITS = 24
"""Bits of a uniform number: as many as float32 holds exactly."""


def signed(bits: int) -> int:
    """A 64-bit number as int64 holds it."""
    return bits - 2**64 if bits >= 2**63 else bits


PLACE = signed(0x9E3779B97F4A7C15)
"""The Weyl constant by which a place is multiplied."""
DRAW = signed(0xD1342543DE82EF95)
"""The constant by which the number of a draw, or of a step, is multiplied."""
_MIX = (signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB))


def mixed(z: Tensor, *, upper: bool = False) -> Tensor:
    """64 random bits for each number of ``z``, int64, which they overwrite.

    ``upper``: only the upper 31 are wanted, and the others are not mixed to the end.
    """
    z ^= _shifted(z, 30)
    z *= _MIX[0]  # in place: a mask of dropout costs as much as a small model's step
    z ^= _shifted(z, 27)
    z *= _MIX[1]
    return z if upper else z.bitwise_xor_(_shifted(z, 31))


def _shifted(z: Tensor, by: int) -> Tensor:
    """A logical shift to the right: int64 has an arithmetic one."""
    shifted = z >> by
    shifted &= 2 ** (64 - by) - 1
    return shifted


def hashes(key: Tensor, first: int, shape: Sequence[int]) -> Tensor:
    """64 random bits for each entry of ``shape``, int64: those of the places from ``first`` on.

    ``key``: an int64 scalar.
    """
    places = torch.arange(first, first + math.prod(shape), device=key.device).view(tuple(shape))
    return mixed(places * PLACE + key)


def uniform(key: Tensor, first: int, like: Tensor) -> Tensor:
    """Uniform numbers in [0, 1), of the shape and type of ``like``."""
    return ((hashes(key, first, like.shape) >> (64 - _BITS)) & (2**_BITS - 1)).to(
        like.dtype
    ) * 2.0**-_BITS


def normal(key: Tensor, first: int, like: Tensor) -> Tensor:
    """Standard normal numbers of the shape and type of ``like``.

    By Box and Muller (1958) from one hash: 24 bits for the radius, 24 others for the angle.
    """
    z = hashes(key, first, like.shape)
    radius = ((z >> (64 - _BITS)) & (2**_BITS - 1)).to(like.dtype) + 0.5
    angle = (z & (2**_BITS - 1)).to(like.dtype) * (2 * math.pi * 2.0**-_BITS)
    return (-2 * (radius * 2.0**-_BITS).log()).sqrt() * angle.cos()
