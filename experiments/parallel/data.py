"""Data parallelism: every rank has the whole model and trains a share of each global batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from experiments.parallel.base import ParallelLayout


class DataParallel(ParallelLayout):
    """Gradients are summed in one message."""

    name = "data"
    summary = "every rank has the whole model and trains a share of each global batch"
    stacks = True

    def reduce_gradients(self, gradients: Sequence[Tensor]) -> None:
        if self.ranks.size > 1:
            flat = self.ranks.all_reduce_(torch.cat([g.reshape(-1) for g in gradients]))
            for gradient, part in zip(
                gradients, flat.split([g.numel() for g in gradients]), strict=True
            ):
                gradient.copy_(part.view_as(gradient))

    def all_reduce(self, sums: Tensor) -> Tensor:
        return self.ranks.all_reduce_(sums)
