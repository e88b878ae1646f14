"""The order in which a trial sees its examples: shuffled epochs, without replacement.

The last short batch of an epoch is dropped, so every step sees exactly ``batch_size`` examples.
Each epoch's permutation is drawn from its own derived seed: the order at any step needs no state,
so resuming continues it exactly, and every rank draws the same one.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from experiments.seeds import derive
from experiments.training.shuffle import Shuffle

_DRAWN_WHOLE = 2**20
"""Up to so many examples an epoch's permutation is drawn as a whole, 8 MiB at the most."""


class BatchOrder:
    """The batches of one trial: ``batches(step, count)`` of ``examples`` training examples."""

    def __init__(self, seed: int, examples: int, batch_size: int) -> None:
        self.seed, self.examples, self.batch_size = seed, examples, batch_size
        self.per_epoch = examples // batch_size
        self._epoch = -1
        self._permutation = torch.empty(0, dtype=torch.int64)

    def batches(self, step: int, count: int) -> Tensor:
        """Indices of the batches of steps ``step`` … ``step + count - 1``, ``(count, batch)``."""
        parts = []
        while count > 0:
            epoch, first = divmod(step, self.per_epoch)
            taken = min(count, self.per_epoch - first)
            parts.append(self._rows(epoch, first, taken))
            step, count = step + taken, count - taken
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rows(self, epoch: int, first: int, count: int) -> Tensor:
        """``count`` batches of an epoch, from its batch ``first`` on."""
        if self.batch_size == self.examples:  # the full training set: its order means nothing
            return torch.arange(self.examples).view(1, -1)
        if self.examples > _DRAWN_WHOLE:
            places = np.arange(first * self.batch_size, (first + count) * self.batch_size)
            indices = Shuffle(self.examples, self.seed, "order", epoch)[places]
            return torch.from_numpy(indices).view(count, self.batch_size)
        if epoch != self._epoch:
            draw = np.random.Generator(np.random.SFC64(derive(self.seed, "order", epoch)))
            used = draw.permutation(self.examples)[: self.per_epoch * self.batch_size]
            self._permutation = torch.from_numpy(used).view(self.per_epoch, self.batch_size)
            self._epoch = epoch
        return self._permutation[first : first + count]
