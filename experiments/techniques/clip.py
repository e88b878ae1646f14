"""Gradient clipping (Pascanu, Mikolov & Bengio 2013): ``torch.nn.utils.clip_grad_norm_`` and
``clip_grad_value_``."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from experiments.techniques.base import State, Step, Technique, Tensors

_EPSILON = 1e-6
"""torch's: the norm of what is clipped stays below the bound."""


class Clip(Technique):
    """Clip the global norm of the gradient of the whole batch to at most ``norm``.

    Or each of its numbers to at most ``value`` in size; with both, the numbers first.
    """

    name = "clip"
    order = 800

    norm: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    value: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    def __post_init__(self) -> None:
        if self.norm is None and self.value is None:
            raise ValueError("give norm, value or both: {clip: {norm: 0.1}}")

    def gradient(self, gradients: Tensors, weights: Tensors, state: State, step: Step) -> Tensors:
        if self.value is not None:
            bound = self.value
            gradients = {n: g.clamp(min=-bound, max=bound) for n, g in gradients.items()}
        if self.norm is None:
            return gradients
        squares = torch.stack([g.square().sum() for g in gradients.values()])
        scale = (self.norm / (squares.sum().sqrt() + _EPSILON)).clamp(max=1.0)
        return {name: gradient * scale for name, gradient in gradients.items()}
