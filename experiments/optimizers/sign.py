"""Steps of the learning rate in the direction of a sign, in pytorch-optimizer's form.

Lion (Chen et al. 2023, arXiv:2302.06675): u = sign(b1 m + (1-b1) g), m <- b2 m + (1-b2) g.
Signum (Bernstein et al. 2018, arXiv:1802.04434): m <- b m + (1-b) g, u = sign(m), where b is
``momentum``. Both: w <- (1 - lr · weight_decay) w - lr u.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.optimizers.base import LibraryOptimizer
from experiments.optimizers.stacked_update import Block, ElementwiseUpdate, Group, StackedUpdate
from experiments.search.space import Value


class _StackedSign(ElementwiseUpdate):
    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        rates = values.keys() - {"weight_decay"}
        self.state = {"mean": torch.zeros_like(like)}
        return {f"1-{name}": 1 - values[name] for name in rates}

    def begin(self, learning_rate: Tensor) -> dict[str, Tensor]:
        shrinkage = self.shrinkage(learning_rate) if self.decays else {}
        return {"learning_rate": learning_rate, **shrinkage}


class _StackedLion(_StackedSign):
    def update(self, block: Block) -> None:
        weights, gradient, scratch, state, values = block
        if self.decays:
            self.shrink(block)
        mean = state["mean"]
        torch.mul(gradient, values["1-beta1"], out=scratch)
        scratch.add_(mean * values["beta1"])
        weights.sub_(scratch.sign_().mul_(values["learning_rate"]))
        mean.mul_(values["beta2"]).add_(gradient.mul_(values["1-beta2"]))

    def update_row(self, row: Group) -> None:
        mean, values = row.state["mean"], row.shared
        direction = torch.lerp(mean, row.gradient, values["1-beta1"])
        mean.lerp_(row.gradient, values["1-beta2"])  # while both are in the cache
        row.weights.sub_(direction.sign_(), alpha=values["learning_rate"])


class _StackedSignum(_StackedSign):
    def update(self, block: Block) -> None:
        weights, gradient, scratch, state, values = block
        if self.decays:
            self.shrink(block)
        mean = state["mean"].mul_(values["momentum"]).add_(gradient.mul_(values["1-momentum"]))
        weights.sub_(torch.sign(mean, out=scratch).mul_(values["learning_rate"]))


class Lion(LibraryOptimizer):
    """The sign of an interpolation between the gradient and its mean; decoupled weight decay."""

    name = "lion"
    elementwise = True
    decoupled_decay = True
    library_class = "Lion"
    form: ClassVar[type[StackedUpdate] | None] = _StackedLion
    defaults: Mapping[str, Value] = {
        "learning_rate": 1e-4,
        "beta1": 0.9,
        "beta2": 0.99,
        "weight_decay": 0.0,
    }
    # The paper (section 5): rates 3 to 10 times smaller, weight decay as much larger than AdamW's.
    space: Mapping[str, Any] = {
        "learning_rate": {"log": [1e-5, 0.1]},
        "weight_decay": {"log": [1e-3, 10]},
    }


class Signum(Lion):
    """The sign of the gradient's mean (momentum), or of the gradient; decoupled weight decay."""

    name = "signum"
    library_class = "SignSGD"
    form = _StackedSignum
    defaults: Mapping[str, Value] = {"learning_rate": 1e-3, "momentum": 0.9, "weight_decay": 0.0}
    # Rates are Lion's, whose steps have the same size; momentum is that of SGD with momentum.
    space: Mapping[str, Any] = {
        "learning_rate": {"log": [1e-5, 0.1]},
        "momentum": {"reverse_log": [0.1, 0.99]},
    }
