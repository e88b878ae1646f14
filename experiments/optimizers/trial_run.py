"""An optimizer tried out on a model's parameters, before results rest on it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from experiments.optimizers.base import Optimizer
from experiments.optimizers.groups import parameter_options
from experiments.search.space import Value
from workloads import Workload

GRADIENTS = (1.0, -0.5, 0.25)
"""Gradients of the steps of a trial run, in multiples of the parameters' first values."""
_APART = 0.05
"""Allowed deviation, as a share of the parameters' change; bfloat16 stays well below it."""

Tensors = Mapping[str, Tensor]


class OptimizerRun:
    """An optimizer over copies of a model's trained parameters; ``step`` takes the steps of
    ``GRADIENTS``."""

    def __init__(
        self,
        optimizer: Optimizer,
        metaparameters: Mapping[str, Value],
        model: nn.Module,
        workload: Workload,
    ) -> None:
        trained = ((name, p) for name, p in model.named_parameters() if p.requires_grad)
        self.start = {name: parameter.detach().clone() for name, parameter in trained}
        self.parameters = {n: nn.Parameter(v.clone()) for n, v in self.start.items()}
        options = parameter_options(optimizer, workload, self.start)
        optimizer.whole({n: v.shape for n, v in self.start.items()}, options)  # muon may refuse
        values = optimizer.arguments_in(metaparameters)
        self.torch: Any = optimizer.module(self.parameters.items(), values, options)
        self.steps = 0
        self.change = 0.0
        """The largest change of a parameter after any of the steps."""

    def step(self) -> None:
        """The next step."""
        for name, parameter in self.parameters.items():
            parameter.grad = self.start[name] * GRADIENTS[self.steps]
        self.torch.step()
        self.steps += 1
        change = (_distance(v, self.start[n]) for n, v in self.parameters.items())
        self.change = max([self.change, *change])

    def save_and_load(self, other: OptimizerRun) -> None:
        """Continue from the state of ``other``, as a stopped trial does."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(other.parameters[name])
        # An optimizer keeps what it is given and changes it in place.
        self.torch.load_state_dict(copy.deepcopy(other.torch.state_dict()))
        self.steps, self.change = other.steps, other.change

    def differs(self, values: Tensors) -> bool:
        """Whether its parameters differ from ``values``."""
        apart = max((_distance(v, values[n]) for n, v in self.parameters.items()), default=0.0)
        return apart > _APART * self.change


def _distance(first: Tensor, second: Tensor) -> float:
    return float((first.detach() - second.detach()).abs().max()) if first.numel() else 0.0
