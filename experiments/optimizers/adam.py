"""Adam (Kingma & Ba 2015), AdamW (Loshchilov & Hutter 2019), NAdam (Dozat 2016), in
``torch.optim``'s form.

m <- b1 m + (1-b1) g, v <- b2 v + (1-b2) g², w <- w - lr/(1-b1^t) · m / (√v/√(1-b2^t) + eps);
AdamW first shrinks w by (1 - lr · weight_decay), the others add weight_decay · w to the gradient.
NAdam, with n(t) = b1 (1 - 0.96^(t · momentum_decay) / 2) and p(t) = n(1) … n(t):
w <- w - lr ((1 - n(t)) / (1 - p(t)) g + n(t+1) / (1 - p(t+1)) m) / (√(v / (1-b2^t)) + eps).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.optimizers.base import PackagedOptimizer
from experiments.optimizers.stacked_update import Block, ElementwiseUpdate, Group, StackedUpdate
from experiments.search.space import Value

_LATE = torch.tensor(1e30)
"""A number of steps at which any beta below 1 has a power of 0."""
_DEFAULTS = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}


class _StackedAdam(ElementwiseUpdate):
    decoupled = False
    shared = ("beta1", "beta2", "epsilon", "root")

    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        self.state = {
            "mean": torch.zeros_like(like),
            "square": torch.zeros_like(like),
            # b^t in float64, by repeated multiplication: exactly rounded in every row alike.
            "beta1": values["beta1"].to(like.device),
            "beta2": values["beta2"].to(like.device),
            "power1": torch.ones_like(values["beta1"], device=like.device),
            "power2": torch.ones_like(values["beta2"], device=like.device),
        }
        return {f"1-{b}": 1 - values[b] for b in ("beta1", "beta2")}

    def begin(self, learning_rate: Tensor) -> dict[str, Tensor]:
        state, dtype = self.state, learning_rate.dtype
        state["power1"].mul_(state["beta1"])
        state["power2"].mul_(state["beta2"])
        return {
            **(self.shrinkage(learning_rate) if self.decays and self.decoupled else {}),
            "size": learning_rate / (1 - state["power1"]).to(dtype),
            "root": (1 - state["power2"]).sqrt_().to(dtype),
        }

    def update(self, block: Block) -> None:
        weights, gradient, scratch, state, values = block
        if self.decays and self.decoupled:
            self.shrink(block)
        elif self.decays:
            gradient.add_(torch.mul(weights, values["weight_decay"], out=scratch))
        mean, square = state["mean"], state["square"]
        mean.mul_(values["beta1"]).add_(torch.mul(gradient, values["1-beta1"], out=scratch))
        square.mul_(values["beta2"]).add_(gradient.mul_(gradient).mul_(values["1-beta2"]))
        # On CPUs with AVX-512 the root of 0 takes twenty times as long as another one, and
        # pixels that are always black have 0. Beside epsilon the smallest number's root is none.
        positive = torch.clamp(square, min=torch.finfo(square.dtype).tiny, out=scratch)
        denominator = positive.sqrt_().div_(values["root"]).add_(values["epsilon"])
        weights.sub_(torch.div(mean, denominator, out=denominator).mul_(values["size"]))

    def update_row(self, row: Group) -> None:
        values = row.shared
        decay = 0.0 if self.decoupled else values["weight_decay"]
        rate = values["size"] * values["root"]
        _fused(row.weights, row.gradient, row.state, values, rate, decay)

    def update_group(self, group: Group) -> None:
        """The kernel takes one rate: it moves zeros, from which the weights are moved."""
        moved, values = group.scratch.zero_(), group.values
        _fused(moved, group.gradient, group.state, group.shared, 1.0, 0.0)
        group.weights.addcmul_(moved, values["size"] * values["root"])


def _fused(
    weights: Tensor,
    gradient: Tensor,
    state: Mapping[str, Tensor],
    values: Mapping[str, float],
    rate: float,
    weight_decay: float,
) -> None:
    """Torch's kernel, told that it is at a late step: its bias corrections are then 1, and ours are
    in the rate and epsilon: (rate root / (1 - b1^t)) m / (√v + epsilon root)."""
    torch._fused_adam_(
        [weights],
        [gradient],
        [state["mean"]],
        [state["square"]],
        [],
        [_LATE],
        lr=rate,
        beta1=values["beta1"],
        beta2=values["beta2"],
        weight_decay=weight_decay,
        eps=values["epsilon"] * values["root"],
        amsgrad=False,
        maximize=False,
    )


class _StackedAdamW(_StackedAdam):
    decoupled = True


class Adam(PackagedOptimizer):
    """Adam; weight decay goes into the gradient."""

    name = "adam"
    elementwise = True
    kind: type[torch.optim.Optimizer] = torch.optim.Adam
    form: ClassVar[type[StackedUpdate] | None] = _StackedAdam
    defaults: Mapping[str, Value] = {"learning_rate": 1e-3, "weight_decay": 0.0, **_DEFAULTS}
    space: Mapping[str, Any] = {"learning_rate": {"log": [1e-4, 1]}}


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    name = "adamw"
    decoupled_decay = True
    kind: type[torch.optim.Optimizer] = torch.optim.AdamW
    form = _StackedAdamW
    defaults: Mapping[str, Value] = {**Adam.defaults, "weight_decay": 0.01}
    space: Mapping[str, Any] = {**Adam.space, "weight_decay": {"log": [1e-4, 1]}}


_DECAY_BASE = 0.96


class _StackedNAdam(StackedUpdate):
    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        # Powers as Adam's, in float64; Python's own power gives the same in every row.
        ratio = values["momentum_decay"].clone().apply_(lambda decay: _DECAY_BASE**decay)
        product = torch.ones_like(values["beta1"] * ratio)
        self.state = {
            "mean": torch.zeros_like(like),
            "square": torch.zeros_like(like),
            "beta1": values["beta1"].to(like.device),
            "beta2": values["beta2"].to(like.device),
            "power2": torch.ones_like(values["beta2"], device=like.device),
            "ratio": ratio.to(like.device),
            "power": torch.ones_like(ratio, device=like.device),
            # torch keeps it in the default type, whatever the parameters have.
            "product": product.to(like.device, torch.get_default_dtype()),
        }
        return {f"1-{b}": 1 - values[b] for b in ("beta1", "beta2")}

    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        state, values, dtype = self.state, self.values, weights.dtype
        self.decay_into(gradient, weights)
        mean, square = state["mean"], state["square"]
        mean.mul_(values["beta1"]).add_(gradient * values["1-beta1"])
        square.mul_(values["beta2"]).add_((gradient * gradient).mul_(values["1-beta2"]))
        state["power2"].mul_(state["beta2"])
        power = state["power"].mul_(state["ratio"])
        present = state["beta1"] * (1 - 0.5 * power)
        following = state["beta1"] * (1 - 0.5 * (power * state["ratio"]))
        product = state["product"].mul_(present.to(state["product"].dtype)).double()
        of_gradient = learning_rate * (1 - present) / (1 - product)
        of_mean = learning_rate * following / (1 - product * following)
        denominator = square.div((1 - state["power2"]).to(dtype)).sqrt_().add_(values["epsilon"])
        update = gradient.mul_(of_gradient.to(dtype)).add_(mean * of_mean.to(dtype))
        weights.sub_(update.div_(denominator))


class NAdam(PackagedOptimizer):
    """Adam with Nesterov's momentum, which warms up; weight decay goes into the gradient."""

    name = "nadam"
    kind = torch.optim.NAdam
    form = _StackedNAdam
    defaults: Mapping[str, Value] = {
        "learning_rate": 2e-3,
        **_DEFAULTS,
        "weight_decay": 0.0,
        "momentum_decay": 4e-3,
    }
    # Adam's, as in Choi et al. 2019 (arXiv:1910.05446): it contains Adam as a special case.
    space: Mapping[str, Any] = {"learning_rate": {"log": [1e-4, 1]}}

    def module(self, *arguments: Any, **values: Any) -> torch.optim.Optimizer:
        made = super().module(*arguments, **values)
        made.register_load_state_dict_post_hook(_keep_product)
        return made


def _keep_product(optimizer: torch.optim.Optimizer) -> None:
    """A state that is loaded gets the type of its parameter, which the product has not."""
    for state in optimizer.state.values():
        state["mu_product"] = state["mu_product"].to(torch.get_default_dtype())
