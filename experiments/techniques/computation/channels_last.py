"""Images and convolutions with their channels last in memory: ``torch.channels_last``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from experiments.errors import ExperimentError
from experiments.techniques.base import Compute, Technique
from workloads import Batch


class ChannelsLast(Technique):
    """Keep the images and the weights of convolutions with their channels last in memory."""

    name = "channels_last"
    stacks = False
    why_not_stacked = "the weights of a stack lie in one tensor"
    in_evaluation = True

    def model(self, model: nn.Module) -> nn.Module:
        if not any(p.dim() == 4 for p in model.parameters()):
            raise ExperimentError(
                f"technique {self.label} is for convolutions of images, and the model has none",
                hint="leave it out for this workload",
            )
        return model.to(memory_format=torch.channels_last)

    def forward(self, compute: Compute, model: nn.Module, batch: Batch) -> Any:
        x, *rest = batch
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return compute(model, (x, *rest))
