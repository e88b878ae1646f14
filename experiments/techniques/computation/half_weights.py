"""Forward and backward passes of weights in bfloat16, updates of masters in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from experiments.techniques.base import Compute, Technique
from workloads import Batch


class HalfWeights(Technique):
    """Compute with copies of the weights in bfloat16; gradients arrive in the masters' float32.

    The parameters of the model are the masters, which the optimizer and all other techniques have.
    It is what ``precision: bfloat16_weights`` means, and not a technique of the grid.
    """

    order = 1000
    in_evaluation = True
    excludes: ClassVar[Mapping[str, str]] = {
        "checkpoint": "the backward pass computes again when the copies are gone; bfloat16 can"
    }

    def forward(self, compute: Compute, model: nn.Module, batch: Batch) -> Any:
        rounded = {f"model.{name}": _rounded(p) for name, p in model.named_parameters()}
        output = functional_call(_Computed(compute, model), rounded, tuple(map(_rounded, batch)))
        return output.float() if isinstance(output, Tensor) else output


class _Computed(nn.Module):
    """A forward pass as that of a module, so that ``functional_call`` reaches it."""

    def __init__(self, compute: Compute, model: nn.Module) -> None:
        super().__init__()
        self.compute, self.model = compute, model

    def forward(self, *batch: Tensor) -> Any:
        return self.compute(self.model, batch)


def _rounded(tensor: Tensor) -> Tensor:
    return tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
