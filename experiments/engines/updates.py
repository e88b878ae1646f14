"""How a stack of models is updated: the optimizer's fused form, or one parameter group a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from experiments.engines.step import Stack
from experiments.optimizers import Optimizer, StackedUpdate
from experiments.optimizers.own import OwnOptimizer
from experiments.plan import Trial


class Update(Protocol):
    """Moves ``stack.weights`` by ``stack.gradient``."""

    def step(self, rates: Tensor) -> None:
        """One update; ``rates``: ``(width, 1)`` float64, the schedule's factor included."""

    def keep(self, rows: Tensor) -> None:
        """The stack has been cut to ``rows``."""

    def state(self) -> dict[str, Any]:
        """What ``load`` needs."""

    def load(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""


class FusedUpdate:
    """All models in a few whole-stack operations."""

    def __init__(self, form: StackedUpdate, stack: Stack) -> None:
        self.form, self.stack = form, stack

    def step(self, rates: Tensor) -> None:
        self.form.step(self.stack.weights, self.stack.gradient, rates.to(self.stack.weights.dtype))

    def keep(self, rows: Tensor) -> None:
        self.form.keep(rows)

    def state(self) -> dict[str, Any]:
        return dict(self.form.state)

    def load(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            self.form.state[name].copy_(value)


class GroupedUpdate:
    """Any ``torch.optim.Optimizer``: one parameter group a model, over views of the stack."""

    def __init__(self, optimizer: OwnOptimizer, trials: Sequence[Trial], stack: Stack) -> None:
        self.optimizer, self.stack = optimizer, stack
        self.trials = list(trials)
        self._build()

    def _build(self) -> None:
        views = self.stack.views
        self.parameters = [
            [nn.Parameter(views[name][row]) for name in self.stack.trainable]
            for row in range(self.stack.width)
        ]
        own = [self.optimizer.own(t.metaparameters) for t in self.trials]
        self.torch = self.optimizer.grouped(self.parameters, own)

    def step(self, rates: Tensor) -> None:
        gradients = self.stack.gradient_views
        for row, parameters in enumerate(self.parameters):
            for name, parameter in zip(self.stack.trainable, parameters, strict=True):
                parameter.grad = gradients[name][row]
        for group, rate in zip(self.torch.param_groups, rates.flatten().tolist(), strict=True):
            group["lr"] = rate
        with torch.enable_grad():
            self.torch.step()

    def keep(self, rows: Tensor) -> None:
        old, picked = self.torch, rows.tolist()
        before = [self.parameters[row] for row in picked]
        groups = [old.param_groups[row] for row in picked]
        self.trials = [self.trials[row] for row in picked]
        self._build()
        taken: set[int] = set()
        for row, (mine, theirs) in enumerate(zip(self.parameters, before, strict=True)):
            extra = {k: v for k, v in groups[row].items() if k != "params"}
            self.torch.param_groups[row].update(extra)
            for parameter, held in zip(mine, theirs, strict=True):
                state = old.state.get(held, {})
                # A row repeated to fill the stack must not share its state with the first.
                copied = id(held) in taken
                self.torch.state[parameter] = {
                    k: v.clone() if copied and isinstance(v, Tensor) else v
                    for k, v in state.items()
                }
                taken.add(id(held))

    def state(self) -> dict[str, Any]:
        return self.torch.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        self.torch.load_state_dict(state)


def make_update(optimizer: Optimizer, trials: Sequence[Trial], stack: Stack) -> Update:
    """The fused form where the optimizer has one.

    ``trials``: one a row of the stack.
    """
    own = [optimizer.own(t.metaparameters) for t in trials]
    form = optimizer.stacked(own, stack.weights)
    if form is not None:
        return FusedUpdate(form, stack)
    if not isinstance(optimizer, OwnOptimizer):
        raise TypeError(f"optimizer {optimizer.name!r} has neither a fused form nor a constructor")
    return GroupedUpdate(optimizer, trials, stack)
