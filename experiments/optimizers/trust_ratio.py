"""Steps in proportion to the norm of each parameter: LARS and LAMB, in pytorch-optimizer's form.

LARS (You et al. 2017, arXiv:1708.03888), momentum SGD: for each matrix, or tensor of more
dimensions, r = trust_coefficient |w| / (|g| + weight_decay |w|), g <- r (g + weight_decay w);
vectors keep g, without weight decay; v <- m v + g, w <- w - lr v.

LAMB (You et al. 2020, arXiv:1904.00962), Adam: m <- b1 m + (1-b1) g, v <- b2 v + (1-b2) g²,
u = m / (√v + eps) + weight_decay w, w <- w - lr |w| / (|u| + eps) u for each matrix; vectors have
the ratio 1. A ratio with a norm of 0 is 1. Where the library's defaults differ, the form is that of
the authors' program: weight decay in u rather than apart from it, no bias correction (the library
divides lr by 1 - b1^t, which makes the first step of each matrix 10 times as large), no ratio for
vectors, and no bound on |w| (the library's is 10).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.optimizers.base import LibraryOptimizer, Named, Options
from experiments.optimizers.stacked_update import (
    ParameterSlice,
    StackedUpdate,
    multiply_add,
    norm_of_rows,
)
from experiments.search.space import Value


class _StackedTrustRatio(StackedUpdate):
    """A stacked update with a ratio for each matrix of each model."""

    @property
    def matrices(self) -> list[ParameterSlice]:
        return [parameter for parameter in self.parameters if len(parameter.shape) > 1]


class _StackedLARS(_StackedTrustRatio):
    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        self.state["velocity"] = torch.zeros_like(like)
        return super().initialize(values, like)

    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        values, velocity = self.values, self.state["velocity"]
        for part in self.matrices:
            w, g = part.of(weights), part.of(gradient)
            decay = part.column(values["weight_decay"])
            of_weights, of_gradient = norm_of_rows(w), norm_of_rows(g)
            denominator = of_gradient + decay * of_weights
            ratio = part.column(values["trust_coefficient"]) * of_weights / denominator
            ratio = torch.where((of_weights > 0) & (denominator > 0), ratio, 1.0)
            if self.decays:
                multiply_add(g, w, decay)
            g.mul_(ratio)
        velocity.mul_(values["momentum"]).add_(gradient)
        weights.sub_(torch.mul(velocity, learning_rate, out=gradient))


class LARS(LibraryOptimizer):
    """Momentum whose gradient is scaled to a share of each matrix's norm; vectors keep theirs."""

    name = "lars"
    library_class = "LARS"
    sums_gradients = True
    form = _StackedLARS
    defaults: Mapping[str, Value] = {
        "learning_rate": 1e-3,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "trust_coefficient": 1e-3,
    }
    # ResNet-50 at large batches uses rates of about 10 to 30 (MLPerf Training). Vectors take the
    # rate as it is, and without batch norm do not stand such rates: from three decades below.
    space: Mapping[str, Any] = {
        "learning_rate": {"log": [3e-2, 30]},
        "momentum": {"reverse_log": [0.1, 0.99]},
    }


class _StackedLAMB(_StackedTrustRatio):
    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        self.state = {"mean": torch.zeros_like(like), "square": torch.zeros_like(like)}
        return {f"1-{b}": 1 - values[b] for b in ("beta1", "beta2")}

    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        values, mean, square = self.values, self.state["mean"], self.state["square"]
        mean.mul_(values["beta1"]).add_(gradient * values["1-beta1"])
        square.mul_(values["beta2"]).add_(gradient.mul_(gradient).mul_(values["1-beta2"]))
        update = torch.sqrt(square, out=gradient).add_(values["epsilon"])
        torch.div(mean, update, out=update)
        if self.decays:
            update.add_(weights * values["weight_decay"])
        for part in self.matrices:
            of_weights, u = norm_of_rows(part.of(weights)), part.of(update)
            of_update = norm_of_rows(u)
            ratio = of_weights / (of_update + part.column(values["epsilon"]))
            u.mul_(torch.where((of_weights != 0) & (of_update != 0), ratio, 1.0))
        weights.sub_(update.mul_(learning_rate))


class LAMB(LibraryOptimizer):
    """Adam's update scaled to each matrix's norm; vectors keep theirs."""

    name = "lamb"
    library_class = "Lamb"
    form = _StackedLAMB
    defaults: Mapping[str, Value] = {
        "learning_rate": 1e-3,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-6,
        "weight_decay": 0.0,
    }
    # The paper's rates for BERT are from 6e-4 (batch 512) to 5e-3 (batch 32,768), its decay is
    # 0.01; small networks take larger rates.
    space: Mapping[str, Any] = {
        "learning_rate": {"log": [1e-4, 1]},
        "weight_decay": {"log": [1e-4, 0.1]},
    }

    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        common = super().torch_arguments(metaparameters)
        return {**common, "weight_decouple": False, "adam_debias": True}

    def module(self, *arguments: Any, **values: Any) -> torch.optim.Optimizer:
        made = super().module(*arguments, **values)
        made.clamp = math.inf  # type: ignore[attr-defined]
        return made

    def _groups(
        self,
        pairs: Sequence[Named],
        metaparameters: Mapping[str, Value],
        options: Mapping[str, Options],
        *,
        named: bool,
    ) -> list[Any]:
        """Vectors in groups of their own, in which the library's ratio is 1 (its ``adam``)."""
        groups = super()._groups(pairs, metaparameters, options, named=named)
        groups = groups if options else [{"params": groups}]
        divided = []
        for group in groups:
            for adam in (False, True):
                members = [p for p in group["params"] if (p.ndim < 2) == adam]
                if members:
                    divided.append({**group, "params": members, "adam": adam})
        return divided
