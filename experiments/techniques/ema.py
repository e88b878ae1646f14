"""Weight averaging (Polyak & Juditsky 1992), exponential: ``torch.optim.swa_utils``' EMA."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field

from experiments.techniques.base import State, Step, Technique, Tensors


class Ema(Technique):
    """Evaluate an exponential moving average of the weights, of rate ``decay``, in their place.

    After the first step the average is the weights; after each later one
    ``decay * average + (1 - decay) * weights``. Training does not see it.
    """

    name = "ema"
    order = 900

    decay: Annotated[float, Field(ge=0, lt=1)]

    def start(self, weights: Tensors) -> State:
        return {name: weight.clone() for name, weight in weights.items()}

    def after_step(self, weights: Tensors, state: State, step: Step) -> Tensors:
        for name, weight in weights.items():
            average = state[name] * self.decay + weight * (1 - self.decay)
            state[name] = torch.where(step.number == 0, weight, average)
        return weights

    def evaluated(self, weights: Tensors, state: State) -> Tensors:
        return dict(state)
