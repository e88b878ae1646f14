"""The contract of a split without end: example i is a function of i."""

from __future__ import annotations

import abc

import torch
from torch import Tensor
from torch.utils.data import Dataset

ENDLESS = 2**62
"""Examples of a generated split: indices are below this."""


class GeneratedSplit(Dataset[tuple[Tensor, ...]], abc.ABC):
    """A training split whose examples are computed from their index, on the device.

    Each trial reads it from a start of its own, in sequence: no example occurs twice in a trial,
    and the batch of any step can be computed without those before it, so that a trial that is
    stopped continues exactly.
    """

    @abc.abstractmethod
    def examples(self, indices: Tensor) -> tuple[Tensor, ...]:
        """The examples of these indices.

        An example depends on its own index and on nothing else: neither on the other indices, nor
        on torch's generators. The engines ask for the examples of many trials and steps at once.

        Args:
            indices: int64 ``(N,)``, each from 0 to 2^62 - 1, on the device that trains.

        Returns:
            Tensors on that device, their leading dimension ``N``, before ``augment`` and
            ``transform``.
        """

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        """A single example, without the leading dimension."""
        return tuple(part[0] for part in self.examples(torch.tensor([index])))
