"""Data selection by loss (Loshchilov & Hutter 2015, arXiv:1511.06343; Jiang et al. 2019,
arXiv:1910.00762)."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from experiments.techniques.base import Step, Technique


class Select(Technique):
    """Train on the ``share`` of each global batch whose losses are largest.

    The batch size, and so the examples to target, are those of the candidates, whose losses are
    computed; the gradient is that of the mean loss of those that are chosen.
    """

    name = "select"

    share: Annotated[float, Field(gt=0, le=1)]

    def select(self, losses: Tensor, step: Step) -> Tensor:
        count = max(1, round(self.share * len(losses)))
        chosen = losses.topk(count).indices
        return torch.zeros_like(losses).scatter(0, chosen, 1 / count)
