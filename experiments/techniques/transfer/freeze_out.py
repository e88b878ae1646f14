"""Progressive freezing of layers (Brock et al. 2017, arXiv:1706.04983): those near the input stop
first."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from experiments.techniques.base import State, Technique, Tensors
from experiments.techniques.transfer.layer_rates import layers_of


class FreezeOut(Technique):
    """Freeze layer after layer, the ``first`` after this share of the budget, the last at its end.

    Between them the layers stop at equal distances. A frozen layer keeps its weights bit for bit;
    its gradient is still computed, so that no time is saved. Layers are those of ``layer_rates``.
    """

    name = "freeze_out"
    order = 700
    uses_budget = True
    budget_shares = ("first", "last")

    first: Annotated[float, Field(ge=0, le=1)]
    last: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of the budget after which the last layer stops."""

    def __post_init__(self) -> None:
        if self.first > self.last:
            raise ValueError("first is not after last")

    @property
    def acts_from(self) -> int:
        """Until then every layer is trained."""
        return round(float(self.first) * (self.budget_steps or 0))

    def start(self, weights: Tensors) -> State:
        layers = list(layers_of(weights).values())
        steps, apart = self.budget_steps or 0, max(len(layers) - 1, 1)
        until = {}
        for i, names in enumerate(layers):
            place = i / apart if len(layers) > 1 else 1.0
            share = self.first + (self.last - self.first) * place
            for name in names:
                zero = torch.zeros_like(weights[name].flatten()[0])
                until[name] = (zero + share * steps).round()
        kept = {name: weight.clone() for name, weight in weights.items()}
        return {"until": until, "weights": kept}

    def gradient(self, gradients: Tensors, weights: Tensors, state: State, step: Tensor) -> Tensors:
        del weights
        return {
            name: torch.where(step < state["until"][name], gradient, 0.0)
            for name, gradient in gradients.items()
        }

    def after_step(self, weights: Tensors, state: State, step: Tensor) -> Tensors:
        until, kept = state["until"], state["weights"]
        state["weights"] = {
            name: torch.where(step < until[name], weight, kept[name])
            for name, weight in weights.items()
        }
        return dict(state["weights"])
