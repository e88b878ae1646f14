"""Random bits that are a function of a key and an index: any of them, in any order, on any device.

A counter-based generator (Salmon et al. 2011, doi:10.1145/2063384.2063405) with the finalizer of
SplitMix64 (Steele, Lea & Flood 2014, doi:10.1145/2660193.2660195) as its hash. torch offers none
in its public interface. Integer arithmetic is exact, so the bits are the same on every device.
"""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch import Tensor


def signed(bits: int) -> int:
    """A 64-bit number as int64 holds it."""
    return bits - 2**64 if bits >= 2**63 else bits


PLACE, DRAW = signed(0x9E3779B97F4A7C15), signed(0xD1342543DE82EF95)
"""The odd constants by which an index, and the number of a draw or a step, are multiplied."""
MIX = (signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB))


def key_of(*parts: int | str) -> int:
    """A 64-bit key, as int64, from integers and texts: the same on every machine."""
    data = blake2b(ascii(parts).encode(), digest_size=8).digest()
    return int.from_bytes(data, "big", signed=True)


def random_bits(key: int, indices: Tensor, draws: int) -> Tensor:
    """64 random bits for each index and draw.

    Args:
        key: ``key_of`` whatever distinguishes this stream from others.
        indices: int64 ``(N,)``, on any device.

    Returns:
        int64 ``(N, draws)``, all 64 bits of it random, on the device of ``indices``.
    """
    of_index = mixed(indices * PLACE + key)
    numbers = torch.arange(1, draws + 1, device=indices.device)
    return mixed(of_index.unsqueeze(1) + numbers * DRAW)


def fields_of(bits: Tensor, size: int) -> Tensor:
    """Each 64-bit number cut into ``64 / size`` unsigned numbers of ``size`` bits.

    Args:
        bits: int64 ``(N, draws)``.
        size: 8, 16 or 32.

    Returns:
        int64 ``(N, draws * 64 / size)``, from 0 to ``2^size - 1``.
    """
    parts = [(bits >> low) & (2**size - 1) for low in range(0, 64, size)]
    return torch.stack(parts, dim=-1).flatten(1)


def mixed(z: Tensor) -> Tensor:
    """64 random bits for each number of ``z``, int64, which they overwrite: Stafford's mix 13, the
    finalizer of SplitMix64."""
    # Shifts to the right are arithmetic: the bits that they fill in are masked.
    z ^= (z >> 30).bitwise_and_(2**34 - 1)
    z *= MIX[0]
    z ^= (z >> 27).bitwise_and_(2**37 - 1)
    z *= MIX[1]
    return z.bitwise_xor_((z >> 31).bitwise_and_(2**33 - 1))
