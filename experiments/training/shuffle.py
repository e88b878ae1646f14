"""A shuffle that is computed where it is read: no table of all examples, random access.

A Feistel network (Luby & Rackoff 1988) of keyed hashes is a permutation of all numbers of so many
bits; one that leads out of the range is followed until it comes back, which is a permutation of the
range (*cycle walking*, Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). Mitchell et
al. 2022 ("Bandwidth-optimal random shuffling for GPUs") shuffle so too. Integers alone decide: it
is the same on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.seeds import derive

Numbers = NDArray[np.uint64]
_ROUNDS = 8
_MULTIPLIERS = tuple(np.uint64(m) for m in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_SHIFTS = tuple(np.uint64(s) for s in (30, 27, 31))


class Shuffle:
    """A pseudo-random permutation of ``0 … size - 1``, drawn by ``parts`` (``seeds.derive``)."""

    def __init__(self, size: int, *parts: int | str) -> None:
        """``size``: from 1 to 2^62."""
        bits = max(2, (size - 1).bit_length())
        self.size = np.uint64(size)
        self._low = np.uint64(bits // 2)
        self._masks = [np.uint64((1 << half) - 1) for half in (bits // 2, bits - bits // 2)]
        self._keys = [np.uint64(derive(*parts, "shuffle", i)) for i in range(_ROUNDS)]

    def __getitem__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """What stands at ``places``, each of them within ``0 … size - 1``."""
        numbers = self._permuted(places.astype(np.uint64))
        out = np.flatnonzero(numbers >= self.size)
        while len(out):  # fewer than half of them, each time
            numbers[out] = self._permuted(numbers[out])
            out = out[numbers[out] >= self.size]
        return numbers.astype(np.int64)

    def _permuted(self, numbers: Numbers) -> Numbers:
        """A permutation of the numbers of that many bits: halves take turns in changing."""
        halves = [numbers & self._masks[0], numbers >> self._low]
        for i, key in enumerate(self._keys):
            changing, other = i % 2, 1 - i % 2
            change = _hash(halves[other] ^ key) & self._masks[changing]
            halves[changing] = halves[changing] ^ change
        return halves[0] | (halves[1] << self._low)


def _hash(numbers: Numbers) -> Numbers:
    """The finalizer of splitmix64 (Steele, Lea & Flood 2014, Stafford's mix 13)."""
    for multiplier, shift in zip(_MULTIPLIERS, _SHIFTS, strict=False):
        numbers = (numbers ^ (numbers >> shift)) * multiplier
    return numbers ^ (numbers >> _SHIFTS[-1])
