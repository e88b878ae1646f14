"""Schedule-Free SGD and AdamW (Defazio et al. 2024, arXiv:2405.15682), in pytorch-optimizer's form.

Gradients are taken at y, between the base iterate z and its average x, which evaluations measure:

    y = (1 - b) z + b x,   z <- z - lr u(y),   x <- (1 - c) x + c z,   c = l² / sum of all l² so far

where l is the largest rate so far, b is ``momentum`` (SGD) or ``beta1`` (AdamW), and u is the
gradient (SGD), or g / (√(v / (1 - b2^t) + 1e-15) + eps) with v <- b2 v + (1 - b2) g² (AdamW), plus
weight_decay · y. Kept are y, the trained weights, and z; x = y + (1 - 1/b) (z - y).

The library's own warmup is not used: a schedule's warmup does the same. A schedule that decays is
not needed, and possible: its factor multiplies lr, not the weights of the average.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from experiments.optimizers.base import LibraryOptimizer, averages
from experiments.optimizers.stacked_update import StackedUpdate
from experiments.search.domains import Domain
from experiments.search.space import Value

_SQUARE_EPSILON = 1e-15
"""The library adds it to the mean square, under the root."""


class _StackedScheduleFree(StackedUpdate):
    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        self.adaptive = "beta2" in values
        share = values["beta1" if self.adaptive else "momentum"]
        zeros = torch.zeros(len(like), 1, dtype=torch.float64, device=like.device)
        self.state = {
            "base": like.clone(),
            # In float64, as Python computes them in the library.
            "b": share.to(like.device),
            "largest_rate": zeros,
            "total": zeros.clone(),
        }
        computed = {"1-1/b": 1 - 1 / share}
        if self.adaptive:
            computed["1-beta2"] = 1 - values["beta2"]
            self.state["square"] = torch.zeros_like(like)
            self.state["beta2"] = values["beta2"].to(like.device)
            self.state["power2"] = torch.ones_like(self.state["beta2"])
        return computed

    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        state = self.state
        if self.adaptive:
            gradient = gradient.div_(self._denominator(gradient))
        self.decay_into(gradient, weights)
        rate = learning_rate.double()
        # A parameter's factor of the rate cancels in c, which is the same for all of them.
        largest = torch.maximum(state["largest_rate"], rate.amax(dim=1, keepdim=True))
        state["largest_rate"].copy_(largest)
        square = largest * largest
        total = state["total"].add_(square)
        share = torch.where(total > 0, square / total, 0.0)
        size = rate * (1 - state["b"] * (1 - share))
        base = state["base"]
        weights.add_((base - weights).mul_(share.to(weights.dtype)))
        weights.sub_(gradient * size.to(weights.dtype))
        base.sub_(gradient.mul_(learning_rate))

    def _denominator(self, gradient: Tensor) -> Tensor:
        state, values = self.state, self.values
        square = state["square"]
        square.mul_(values["beta2"]).add_((gradient * gradient).mul_(values["1-beta2"]))
        state["power2"].mul_(state["beta2"])
        corrected = square / (1 - state["power2"]).to(square.dtype)
        return corrected.add_(_SQUARE_EPSILON).sqrt_().add_(values["epsilon"])

    def evaluated(self, weights: Tensor) -> Tensor:
        return (self.state["base"] - weights).mul_(self.values["1-1/b"]).add_(weights)


class ScheduleFreeSGD(LibraryOptimizer):
    """SGD at a point between its iterate and their average; evaluations measure the average."""

    name = "schedule-free-sgd"
    elementwise = True
    library_class = "ScheduleFreeSGD"
    form = _StackedScheduleFree
    interpolation = "momentum"
    defaults: Mapping[str, Value] = {"learning_rate": 1.0, "momentum": 0.9, "weight_decay": 0.0}
    # The authors advise rates 10 to 50 times as large as those of SGD, and b of 0.9, 0.95 or 0.98.
    space: Mapping[str, Any] = {
        "learning_rate": {"log": [1e-2, 100]},
        "momentum": {"reverse_log": [0.5, 0.99]},
    }

    def __init__(self) -> None:
        super().__init__()
        # At 0 the average could not be computed of y and z, and the library refuses it.
        self.domains = MappingProxyType({self.interpolation: Domain(low=0, high=1, above=True)})


class ScheduleFreeAdamW(ScheduleFreeSGD):
    """AdamW without its first average, at a point between its iterate and their average.

    Evaluations measure the average.
    """

    name = "schedule-free-adamw"
    library_class = "ScheduleFreeAdamW"
    interpolation = "beta1"
    defaults: Mapping[str, Value] = {
        "learning_rate": 2.5e-3,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
    }
    # The authors advise rates 1 to 10 times as large as those of AdamW, whose range is as wide.
    space: Mapping[str, Any] = {
        "learning_rate": {"log": [1e-4, 1]},
        "weight_decay": {"log": [1e-4, 1]},
    }


@contextmanager
def evaluated_weights(
    optimizer: torch.optim.Optimizer,
    changed: Callable[[torch.optim.Optimizer], None] = lambda _: None,
) -> Iterator[None]:
    """Within, the parameters have the weights that are measured.

    Afterwards they have the trained ones, bit for bit: ``train`` itself would compute them back,
    with a rounding error, and the trajectory would depend on the steps that are evaluated.

    Args:
        changed: called when the optimizer's parameters have changed, in their memory.
    """
    if not averages(optimizer):
        yield
        return
    averaging: Any = optimizer
    parameters = [p.detach() for group in optimizer.param_groups for p in group["params"]]
    trained = [p.clone() for p in parameters]
    averaging.eval()
    changed(optimizer)
    try:
        yield
    finally:
        averaging.train()
        for p, weights in zip(parameters, trained, strict=True):
            p.copy_(weights)
        changed(optimizer)
