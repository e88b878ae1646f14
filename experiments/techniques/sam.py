"""Sharpness-aware minimization (Foret et al. 2021, arXiv:2010.01412), and its adaptive form
(Kwon et al. 2021, arXiv:2102.11600)."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from experiments.techniques.base import State, Step, Technique, Tensors

_EPSILON = 1e-12
_ADAPTIVE = 0.01
"""What the adaptive form adds to the size of each weight: η of its authors' program."""


class Sam(Technique):
    """Update by the gradient at the weights that are ``rho`` up along the first gradient.

    The first gradient is that of the whole global batch. A step takes two gradients, as the column
    ``gradients_per_step`` says.
    """

    name = "sam"

    rho: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    """The distance, in the Euclidean norm of all weights."""
    adaptive: bool = False
    """Measure the distance relative to the size of each weight."""

    def perturbed(self, weights: Tensors, gradients: Tensors, state: State, step: Step) -> Tensors:
        scales = {
            name: weight.abs() + _ADAPTIVE if self.adaptive else torch.ones_like(weight)
            for name, weight in weights.items()
        }
        up = {name: scales[name] * gradient for name, gradient in gradients.items()}
        norm = _norm(up) + _EPSILON
        return {
            name: weight + scales[name] * up[name] * (self.rho / norm)
            for name, weight in weights.items()
        }


def _norm(tensors: Tensors) -> Tensor:
    return torch.stack([tensor.square().sum() for tensor in tensors.values()]).sum().sqrt()
