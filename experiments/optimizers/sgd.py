"""Stochastic gradient descent, plain, with heavy-ball momentum, and with Nesterov's.

SGD: w <- w - lr g. Momentum: v <- m v + g, w <- w - lr v. Nesterov: v <- m v + g,
w <- w - lr (m v + g). The forms of Shallue et al. 2019 §4.2 and of ``torch.optim.SGD``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.optimizers.base import PackagedOptimizer
from experiments.optimizers.stacked_update import StackedUpdate, multiply_add
from experiments.search.space import Value


class _StackedSGD(StackedUpdate):
    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        self.decay_into(gradient, weights)
        multiply_add(weights, self.direction(gradient), -learning_rate)

    def direction(self, gradient: Tensor) -> Tensor:
        """What the weights move against, ``(models, size)``; ``gradient`` may be overwritten."""
        return gradient


class _StackedMomentum(_StackedSGD):
    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        self.state["velocity"] = torch.zeros_like(like)
        return super().initialize(values, like)

    def direction(self, gradient: Tensor) -> Tensor:
        velocity, momentum = self.state["velocity"], self.values["momentum"]
        if momentum.shape[1] == 1:
            return torch.addcmul(gradient, velocity, momentum, out=velocity)
        return velocity.mul_(momentum).add_(gradient)


class _StackedNesterov(_StackedMomentum):
    def direction(self, gradient: Tensor) -> Tensor:
        return multiply_add(gradient, super().direction(gradient), self.values["momentum"])


class SGD(PackagedOptimizer):
    """Stochastic gradient descent without momentum. The others derive from it."""

    name = "sgd"
    elementwise = True
    sums_gradients = True
    decoupled_decay = True  # w - lr (g + decay w) is (1 - lr decay) w - lr g
    kind = torch.optim.SGD
    form: ClassVar[type[StackedUpdate] | None] = _StackedSGD
    defaults: Mapping[str, Value] = {"learning_rate": 1e-3, "weight_decay": 0.0}
    space: Mapping[str, Any] = {"learning_rate": {"log": [1e-3, 10]}}


class Momentum(SGD):
    """SGD with heavy-ball momentum."""

    name = "momentum"
    decoupled_decay = False
    form = _StackedMomentum
    space: Mapping[str, Any] = {
        "learning_rate": {"log": [1e-4, 10]},
        "momentum": {"reverse_log": [0.1, 0.99]},
    }

    def __init__(self) -> None:
        super().__init__()
        # Without a default: torch's, 0, is none, and no optimizer of that name.
        self.arguments |= {"momentum"}


class Nesterov(Momentum):
    """SGD with Nesterov's momentum."""

    name = "nesterov"
    form = _StackedNesterov

    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        arguments = super().torch_arguments(metaparameters)
        return {**arguments, "nesterov": arguments["momentum"] > 0}  # torch refuses it at 0
