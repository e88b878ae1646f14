"""Optimizers that update all parameters in a few kernels: ``fused=True`` of ``torch.optim``."""

from __future__ import annotations

import torch

from experiments.errors import ExperimentError
from experiments.techniques.base import Technique


class Fused(Technique):
    """Update all parameters of a model in one kernel, where torch has it for the optimizer."""

    name = "fused"
    stacks = False
    why_not_stacked = "a stack updates all its models at once anyway"

    def optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        if "fused" not in optimizer.defaults:
            raise ExperimentError(
                f"technique {self.label}: torch has no fused form of {type(optimizer).__name__}",
                hint="sgd, momentum, nesterov, adam, adamw or adagrad",
            )
        for options in (optimizer.defaults, *optimizer.param_groups):
            options.update(fused=True, foreach=False)
        return optimizer
