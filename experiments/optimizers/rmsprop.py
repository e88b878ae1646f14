"""RMSprop (Tieleman & Hinton 2012) and Adagrad (Duchi et al. 2011), in ``torch.optim``'s form.

RMSprop: s <- b2 s + (1 - b2) g², v <- m v + g / (√s + eps), w <- w - lr v; b2 is torch's ``alpha``.
Adagrad: s <- s + g², w <- w - lr g / (√s + eps). Weight decay adds weight_decay · w to g.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from experiments.optimizers.base import PackagedOptimizer
from experiments.optimizers.stacked_update import StackedUpdate
from experiments.search.space import Value


class _StackedRMSprop(StackedUpdate):
    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        self.state = {"square": torch.zeros_like(like), "velocity": torch.zeros_like(like)}
        return {"1-beta2": 1 - values["beta2"]}

    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        values, square, velocity = self.values, self.state["square"], self.state["velocity"]
        self.decay_into(gradient, weights)
        square.mul_(values["beta2"]).add_((gradient * gradient).mul_(values["1-beta2"]))
        velocity.mul_(values["momentum"]).add_(gradient.div_(square.sqrt().add_(values["epsilon"])))
        weights.sub_(velocity * learning_rate)


class RMSprop(PackagedOptimizer):
    """The gradient over the root of its mean square, with momentum if any."""

    name = "rmsprop"
    elementwise = True
    sums_gradients = True
    kind = torch.optim.RMSprop
    form = _StackedRMSprop
    defaults: Mapping[str, Value] = {
        "learning_rate": 1e-2,
        "beta2": 0.99,
        "momentum": 0.0,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
    }
    # Wilson et al. 2017 (arXiv:1705.08292) tuned it from 1e-4 to 1e-2; a decade more on both sides.
    space: Mapping[str, Any] = {"learning_rate": {"log": [1e-5, 0.1]}}

    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        arguments = super().torch_arguments(metaparameters)
        return {"alpha": arguments.pop("beta2"), **arguments}


class _StackedAdagrad(StackedUpdate):
    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        self.state = {"sum": torch.zeros_like(like)}
        return super().initialize(values, like)

    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        self.decay_into(gradient, weights)
        total = self.state["sum"].add_(gradient * gradient)
        denominator = total.sqrt().add_(self.values["epsilon"])
        weights.sub_(gradient.div_(denominator).mul_(learning_rate))


class Adagrad(PackagedOptimizer):
    """The gradient over the root of the sum of all its squares."""

    name = "adagrad"
    elementwise = True
    kind = torch.optim.Adagrad
    form = _StackedAdagrad
    defaults: Mapping[str, Value] = {"learning_rate": 1e-2, "epsilon": 1e-10, "weight_decay": 0.0}
    # Wilson et al. 2017 (arXiv:1705.08292) tuned it from 5e-3 to 1e-1; a decade more on both sides.
    space: Mapping[str, Any] = {"learning_rate": {"log": [5e-4, 1]}}
