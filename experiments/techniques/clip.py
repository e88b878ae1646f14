"""Gradient clipping (Pascanu, Mikolov & Bengio 2013): ``torch.nn.utils.clip_grad_norm_``."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from experiments.techniques.base import State, Technique, Tensors

_EPSILON = 1e-6
"""torch's: the norm of what is clipped stays below the bound."""


class Clip(Technique):
    """Clip the global norm of the gradient of the whole batch to at most ``norm``."""

    name = "clip"
    order = 800

    norm: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    def gradient(self, gradients: Tensors, weights: Tensors, state: State, step: Tensor) -> Tensors:
        del weights, state, step
        squares = torch.stack([g.square().sum() for g in gradients.values()])
        scale = (self.norm / (squares.sum().sqrt() + _EPSILON)).clamp(max=1.0)
        return {name: gradient * scale for name, gradient in gradients.items()}
