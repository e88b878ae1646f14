"""Stochastic gradient descent, plain, with heavy-ball momentum, and with Nesterov's.

SGD: w <- w - lr g. Momentum: v <- m v + g, w <- w - lr v. Nesterov: v <- m v + g,
w <- w - lr (m v + g). The forms of Shallue et al. 2019 §4.2 and of ``torch.optim.SGD``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.optimizers.base import (
    Optimizer,
    ParameterSlice,
    StackedUpdate,
    columns,
    decay_into_gradient,
)
from experiments.plan import Value


class _StackedSGD(StackedUpdate):
    def __init__(
        self,
        metaparameters: Sequence[Mapping[str, Value]],
        like: Tensor,
        options: Mapping[str, Tensor],
        kind: str,
    ) -> None:
        values = columns(metaparameters, {"momentum": 0.0, "weight_decay": 0.0}, options)
        super().__init__(values, like)
        self.kind = kind
        if kind != "sgd":
            self.state["velocity"] = torch.zeros_like(like)

    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        if self.decays:
            decay_into_gradient(weights, gradient, self.values["weight_decay"])
        if self.kind != "sgd":
            momentum, velocity = self.values["momentum"], self.state["velocity"]
            velocity.mul_(momentum).add_(gradient)
            if self.kind == "nesterov":
                gradient.add_(velocity * momentum)
            else:
                gradient = velocity
        weights.sub_(gradient * learning_rate)


class SGD(Optimizer):
    """Without momentum; the others derive from it."""

    name = "sgd"
    kind = torch.optim.SGD

    def __init__(self) -> None:
        self.defaults = {"learning_rate": 1e-3, "weight_decay": 0.0}
        self.arguments = frozenset(self.defaults)
        self.space = {"learning_rate": {"log": [1e-3, 10]}}

    def _momentum(self, metaparameters: Mapping[str, Value]) -> float:  # noqa: ARG002
        return 0.0

    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        momentum = self._momentum(metaparameters)
        return {
            "lr": float(metaparameters["learning_rate"]),
            "momentum": momentum,
            "weight_decay": float(metaparameters.get("weight_decay", 0.0)),
            "nesterov": self.name == "nesterov" and momentum > 0,
        }

    def stacked(
        self,
        metaparameters: Sequence[Mapping[str, Value]],
        like: Tensor,
        options: Mapping[str, Tensor],
        parameters: Sequence[ParameterSlice],  # noqa: ARG002 - every number is treated alike
    ) -> StackedUpdate:
        values = [{**m, "momentum": self._momentum(m)} for m in metaparameters]
        return _StackedSGD(values, like, options, self.name)

    def effective_learning_rate(self, metaparameters: Mapping[str, Value]) -> float | None:
        return float(metaparameters["learning_rate"]) / (1 - self._momentum(metaparameters))


class Momentum(SGD):
    """Heavy-ball momentum."""

    name = "momentum"

    def __init__(self) -> None:
        super().__init__()
        self.arguments |= {"momentum"}
        self.space = {
            "learning_rate": {"log": [1e-4, 10]},
            "momentum": {"reverse_log": [0.1, 0.99]},
        }

    def _momentum(self, metaparameters: Mapping[str, Value]) -> float:
        return float(metaparameters.get("momentum", 0.9))


class Nesterov(Momentum):
    """Nesterov's momentum."""

    name = "nesterov"
