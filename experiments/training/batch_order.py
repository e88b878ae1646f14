"""The order in which a trial sees its examples: shuffled epochs, or a sequence without end.

Within an epoch an example is drawn once. The last short batch is dropped, so every step sees
exactly ``batch_size`` examples. Where the batch size grows, a new phase goes on in the epoch where
the one before has ended.
Each epoch's permutation is drawn from its own derived seed: the order at any step needs no state,
so resuming continues it exactly, and every rank draws the same one.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.batch_sizes import BatchSizes
from experiments.errors import ExperimentError
from experiments.seeds import derive
from results.counts import count as counted

_DRAWN_WHOLE = 2**20
"""Up to so many examples an epoch's permutation is drawn as a whole, 8 MiB at the most."""
Numbers = NDArray[np.uint64]
_ROUNDS = 8
_MULTIPLIERS = tuple(np.uint64(m) for m in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_SHIFTS = tuple(np.uint64(s) for s in (30, 27, 31))


class _ComputedOrder:
    """An order in which the batch of any step is computed without those before it."""

    def state(self) -> None:
        """What ``load`` needs besides the step: nothing."""

    def load(self, state: None, step: int) -> None:
        """Continue at ``step``."""

    def has(self, step: int) -> bool:  # noqa: ARG002 - a hook
        """Whether there are examples for this step."""
        return True


class BatchOrder(_ComputedOrder):
    """The batches of one trial: ``batches(step, count)`` of ``examples`` training examples."""

    def __init__(
        self, seed: int, examples: int, batch_size: int | BatchSizes, *, repeat: bool = True
    ) -> None:
        """``batch_size``: of all steps, or of each; ``repeat``: whether there are further epochs
        after the first."""
        self.seed, self.examples, self.repeat = seed, examples, repeat
        if not isinstance(batch_size, BatchSizes):
            batch_size = BatchSizes.constant(batch_size)
        self.sizes = batch_size
        self._phases = _phases(batch_size, examples)
        self._epoch = -1
        self._permutation = np.empty(0, dtype=np.int64)

    def batches(self, step: int, count: int) -> Tensor:
        """Indices of the batches of steps ``step`` … ``step + count - 1``, ``(count, batch)``.

        All of these steps have one batch size.

        Raises:
            ExperimentError: a step beyond the first epoch, where there are no others.
        """
        parts: list[NDArray[np.int64]] = []
        size = self.sizes.size(step)
        assert self.sizes.size(step + count - 1) == size
        if not self.has(step + count - 1):
            raise ExperimentError(
                f"step {step + count} at batch size {size} is beyond one pass over the "
                f"training set ({counted(self.examples, 'example')})",
                hint="repeat_data: true allows further epochs",
            )
        while count > 0:
            epoch, first = self._place(step)
            taken = min(count, (self.examples - first) // size)
            parts.append(self._part(epoch, first, taken, size))
            step, count = step + taken, count - taken
        indices = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return torch.from_numpy(indices).view(-1, size)

    def has(self, step: int) -> bool:
        """Whether there are examples for this step: without end, unless one pass is all."""
        return self.repeat or self._place(step)[0] == 0

    def _place(self, step: int) -> tuple[int, int]:
        """The epoch of a step, and how many examples of it come before."""
        start, size, epoch, seen = next(p for p in reversed(self._phases) if p[0] <= step)
        return _advanced(epoch, seen, step - start, size, self.examples)

    def _part(self, epoch: int, first: int, count: int, size: int) -> NDArray[np.int64]:
        """The indices of ``count`` batches of an epoch, from its example ``first`` on."""
        if size == self.examples:  # the full training set: its order does not matter
            return np.arange(self.examples)
        return self.entries(epoch, np.arange(first, first + count * size))

    def entries(self, epoch: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices at some places of an epoch's permutation."""
        if self.examples > _DRAWN_WHOLE:
            return Shuffle(self.examples, self.seed, "order", epoch)[places]
        if epoch != self._epoch:
            draw = np.random.Generator(np.random.SFC64(derive(self.seed, "order", epoch)))
            self._permutation, self._epoch = draw.permutation(self.examples), epoch
        return self._permutation[places]


class BranchedOrder(BatchOrder):
    """The order of a trial that goes on from a step of another one: what is left of the epoch there
    is shuffled anew, and so is each later epoch."""

    def __init__(
        self, seed: int, examples: int, sizes: BatchSizes, *, before: int, step: int, repeat: bool
    ) -> None:
        """``before``: the seed of the order up to ``step``, which is 1 at least."""
        super().__init__(seed, examples, sizes, repeat=repeat)
        self._before = BatchOrder(before, examples, sizes, repeat=repeat)
        epoch, first = self._place(step - 1)
        self._branch = epoch, first + sizes.size(step - 1)

    def entries(self, epoch: int, places: NDArray[np.int64]) -> NDArray[np.int64]:
        at, seen = self._branch
        if epoch > at:
            return super().entries(epoch, places)
        if epoch == at and places[0] >= seen:
            rest = Shuffle(self.examples - seen, self.seed, "order", epoch)
            places = seen + rest[places - seen]
        return self._before.entries(epoch, places)


def _phases(sizes: BatchSizes, examples: int) -> list[tuple[int, int, int, int]]:
    """Of each phase its first step, batch size, and epoch with the examples seen of it before."""
    phases: list[tuple[int, int, int, int]] = []
    for start, size in zip(sizes.starts, sizes.sizes, strict=True):
        place = 0, 0
        if phases:
            before, size_before, epoch, seen = phases[-1]
            # The place after the last step, not that of the next: what is left is not dropped yet.
            epoch, seen = _advanced(epoch, seen, start - before - 1, size_before, examples)
            place = epoch, seen + size_before
        phases.append((start, size, *place))
    return phases


def _advanced(epoch: int, seen: int, steps: int, size: int, examples: int) -> tuple[int, int]:
    """The place of the step that is ``steps`` after the one at a place, all of one batch size."""
    left = (examples - seen) // size
    if steps < left:
        return epoch, seen + steps * size
    epochs, rest = divmod(steps - left, examples // size)
    return epoch + 1 + epochs, rest * size


class SequentialOrder(_ComputedOrder):
    """The batches of one trial of a split without end: consecutive numbers from a random start.

    A start is a number of 61 bits, from the trial's seed: that any two of 1,000 trials of 10^9
    examples each have an example in common has a probability of 4·10^-4.
    """

    def __init__(self, seed: int, batch_size: int) -> None:
        self.batch_size = batch_size
        self.start = derive(seed, "order") >> 2

    def batches(self, step: int, count: int) -> Tensor:
        """Indices of the batches of steps ``step`` … ``step + count - 1``, ``(count, batch)``."""
        first = self.start + step * self.batch_size
        return torch.arange(first, first + count * self.batch_size).view(count, self.batch_size)


class Shuffle:
    """A pseudo-random permutation of ``0 … size - 1``, drawn by ``parts`` (``seeds.derive``).

    It is computed where it is read: no table of all examples, random access. A Feistel network
    (Luby & Rackoff 1988) of keyed hashes permutes all numbers of so many bits; a number outside the
    range is permuted again until it is inside, which is a permutation of the range (*cycle
    walking*, Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). Mitchell et al. 2022
    ("Bandwidth-optimal random shuffling for GPUs") shuffle so too. Integers alone decide: it is the
    same on every machine.
    """

    def __init__(self, size: int, *parts: int | str) -> None:
        """``size``: from 1 to 2^62."""
        bits = max(2, (size - 1).bit_length())
        self.size = np.uint64(size)
        self._low = np.uint64(bits // 2)
        self._masks = [np.uint64((1 << half) - 1) for half in (bits // 2, bits - bits // 2)]
        self._keys = [np.uint64(derive(*parts, "shuffle", i)) for i in range(_ROUNDS)]

    def __getitem__(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The entries at ``places``, each of them within ``0 … size - 1``."""
        numbers = self._permuted(places.astype(np.uint64))
        outside = np.flatnonzero(numbers >= self.size)
        while len(outside):  # fewer than half of them, each time
            numbers[outside] = self._permuted(numbers[outside])
            outside = outside[numbers[outside] >= self.size]
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
