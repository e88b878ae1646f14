"""CIFAR-10 and CIFAR-100 as their workloads have them: normalized, and augmented where wanted."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from workloads.base import Batch
from workloads.data import images
from workloads.images.base import ImageClassification, normalized

_MEAN = {"cifar10": (0.4914, 0.4822, 0.4465), "cifar100": (0.5071, 0.4865, 0.4409)}
_DEVIATION = {"cifar10": (0.2470, 0.2435, 0.2616), "cifar100": (0.2673, 0.2564, 0.2762)}
_PAD = 4


class CIFAR(ImageClassification):
    """Images of 32×32 pixels; ``dataset`` is ``cifar10`` or ``cifar100``."""

    augmented: bool = False
    """Whether training images are shifted by up to 4 pixels and mirrored at random."""

    def data(self) -> Mapping[str, Batch]:
        """45,000 / 5,000 / 10,000 examples: x uint8 (N, 3, 32, 32), y int64 (N,)."""
        return self.subsets(images(self.dataset))

    def transform(self, batch: Batch, *, training: bool) -> Batch:  # noqa: ARG002
        """Each channel with mean 0 and deviation 1 over the training set, shape (B, 3, 32, 32)."""
        return normalized(batch[0], _MEAN[self.dataset], _DEVIATION[self.dataset]), *batch[1:]

    @property
    def augments(self) -> bool:
        """The value of the field ``augmented``."""
        return self.augmented

    def augment(self, batch: Batch, generator: torch.Generator) -> Batch:
        """A random window of the zero-padded image, mirrored with probability 1/2."""
        return (_shift_and_mirror(batch[0], generator), *batch[1:]) if self.augmented else batch


def _shift_and_mirror(x: Tensor, generator: torch.Generator) -> Tensor:
    """``x``, (B, C, H, W), each image in a window of its own. Three numbers an image are drawn."""
    examples, _, height, width = x.shape
    drawn = torch.rand(examples, 3, generator=generator, device=generator.device).to(x.device)
    offset = (drawn[:, :2] * (2 * _PAD + 1)).long()
    rows = offset[:, :1] + torch.arange(height, device=x.device)
    columns = torch.arange(width, device=x.device).expand(examples, width)
    columns = torch.where(drawn[:, 2:] < 0.5, columns.flip(1), columns) + offset[:, 1:]
    padded = F.pad(x, (_PAD, _PAD, _PAD, _PAD))
    picked = padded.gather(2, rows[:, None, :, None].expand(-1, x.shape[1], -1, padded.shape[3]))
    return picked.gather(3, columns[:, None, None, :].expand(-1, x.shape[1], height, -1))
