"""What mixup and cutmix share: examples with the labels of two, and a weight for each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from experiments.errors import ExperimentError
from experiments.techniques.base import Compute, Technique
from workloads import Batch


class MixedLabels(Technique):
    """The loss is the mean of those for both labels, which for cross entropy is that of a mean of
    the labels. A mixed batch ends with the partners' labels and the first labels' weight."""

    excludes = dict.fromkeys(("mixup", "cutmix"), "an example has one partner")

    def forward(self, compute: Compute, model: nn.Module, batch: Batch) -> Any:
        return compute(model, batch[: len(batch) // 2])

    def criterion(self, compute: Compute, output: Any, batch: Batch) -> Tensor:
        half, share = len(batch) // 2, batch[-1]
        first: Tensor = compute(output, batch[:half])
        return first * share + compute(output, (batch[0], *batch[half:-1])) * (1 - share)

    def mixed(self, x: Tensor, batch: Batch, partner: Tensor, share: float) -> Batch:
        """``batch`` with the inputs ``x``, of which ``share`` is that of the first example."""
        labels = batch[1:]
        if not labels:
            raise ExperimentError(
                f"technique {self.label} mixes labels, and these examples have none",
                hint="leave it out for this workload",
            )
        shares = torch.full((len(x),), share, dtype=torch.float32, device=x.device)
        return (x, *labels, *(y[partner] for y in labels), shares)


def drawn_share(alpha: float) -> float:
    """The first example's share, of the beta distribution with both parameters ``alpha``."""
    concentration = torch.full((), alpha)
    return float(torch.distributions.Beta(concentration, concentration).sample())
