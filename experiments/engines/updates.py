"""How a stack of models is updated: the optimizer's fused form, or one parameter group a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from experiments.engines.base import gather
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

    def add(self, other: Any) -> None:
        """The rows of ``other``'s stack, at their first step, have been put behind this one's."""

    def copy(self, rows: Tensor) -> list[Any]:
        """What ``restore`` needs of each of these rows."""

    def restore(self, row: int, held: Any) -> None:
        """Take a row back to what it was when ``held`` was copied of it."""

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

    def add(self, other: FusedUpdate) -> None:
        self.form.add(other.form)

    def copy(self, rows: Tensor) -> list[Any]:
        held = {name: value[rows].unbind() for name, value in self.form.state.items()}
        return [{name: of[i] for name, of in held.items()} for i in range(len(rows))]

    def restore(self, row: int, held: Any) -> None:
        for name, value in held.items():
            self.form.state[name][row].copy_(value)

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
        picked = rows.tolist()
        self._carry([self.trials[row] for row in picked], picked)

    def add(self, other: GroupedUpdate) -> None:
        self._carry([*self.trials, *other.trials], range(len(self.trials)))

    def _carry(self, trials: Sequence[Trial], sources: Sequence[int]) -> None:
        """Build it over the stack as it is now; row ``i`` goes on from what was ``sources[i]``.

        Rows beyond ``sources`` are at their first step.
        """
        old, before = self.torch, self.parameters
        self.trials = list(trials)
        self._build()
        taken: set[int] = set()
        for row, source in enumerate(sources):
            self.torch.param_groups[row].update(_extra(old.param_groups[source]))
            for parameter, held in zip(self.parameters[row], before[source], strict=True):
                state = old.state.get(held, {})
                # A row repeated to fill the stack must not share its state with the first.
                copied = id(held) in taken
                self.torch.state[parameter] = {
                    k: v.clone() if copied and isinstance(v, Tensor) else v
                    for k, v in state.items()
                }
                taken.add(id(held))

    def copy(self, rows: Tensor) -> list[Any]:
        return [
            {
                "group": gather(_extra(self.torch.param_groups[row])),
                "state": [gather(self.torch.state.get(p, {})) for p in self.parameters[row]],
            }
            for row in rows.tolist()
        ]

    def restore(self, row: int, held: Any) -> None:
        self.torch.param_groups[row].update(gather(held["group"]))
        for parameter, before in zip(self.parameters[row], held["state"], strict=True):
            state = self.torch.state.pop(parameter, {})
            for name, value in before.items():
                # In place where there is something: torch keeps some of it on another device.
                there = state.get(name)
                fits = isinstance(there, Tensor) and isinstance(value, Tensor)
                state[name] = there.copy_(value) if fits else gather(value)
            self.torch.state[parameter] = {name: state[name] for name in before}

    def state(self) -> dict[str, Any]:
        return self.torch.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        self.torch.load_state_dict(state)


def _extra(group: dict[str, Any]) -> dict[str, Any]:
    """A parameter group without its parameters."""
    return {name: value for name, value in group.items() if name != "params"}


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
