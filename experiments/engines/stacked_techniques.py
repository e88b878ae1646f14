"""The hooks of a study's techniques on all models of a stack at once, by ``torch.func.vmap``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from experiments.engines.stack import Stack
from experiments.techniques import Techniques

_IN_STEPS = ("before_step", "select", "perturbed", "gradient", "after_step")
"""Hooks that are called in a step, besides those of the forward pass."""


class StackedTechniques:
    """The techniques of each row of ``stack``, with their states."""

    def __init__(self, rows: Sequence[Techniques], stack: Stack) -> None:
        self.stack, self.techniques, self._rows = stack, rows[0], list(rows)
        self._arguments = {
            name: {argument: self._column(rows, name, argument) for argument in arguments}
            for name, arguments in self.techniques.tuned.items()
        }
        """Each model's values of the arguments that the search tunes, and what else techniques
        use: its seed, and its learning rate."""
        for name, part in self.techniques.parts.items():
            if part.uses_seed:
                seeds = [row.parts[name].seed for row in rows]
                column = torch.tensor(seeds, dtype=torch.int64, device=stack.weights.device)
                self._arguments.setdefault(name, {})["seed"] = column
            if part.uses_learning_rate:
                column = stack.weights.new_ones(len(rows))
                self._arguments.setdefault(name, {})["learning_rate"] = column
        self.has = {hook: self.techniques.define(hook) for hook in _IN_STEPS}
        self._now, self._made = self.techniques, torch.empty(0)
        """The techniques in this step, and the updates made before it, of each model."""
        self.state: dict[str, Any] = {}
        if self.techniques.parts:
            self.state = self._each(Techniques.start, self._trained(stack.views))

    def _column(self, rows: Sequence[Techniques], name: str, argument: str) -> Tensor:
        values = [float(row.tuned[name][argument]) for row in rows]
        return torch.tensor(values, dtype=torch.float64).to(self.stack.weights)

    def _trained(self, views: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: views[name] for name in self.stack.trainable}

    def _each(
        self, hook: Callable[..., Any], *inputs: Any, arguments: dict[str, Any] | None = None
    ) -> Any:
        """``hook`` of each model's techniques; ``inputs`` have the models as first dimension."""

        def of_model(arguments: dict[str, Any], *inputs: Any) -> Any:
            return hook(self._now.with_arguments(arguments), *inputs)

        return vmap(of_model)(self._arguments if arguments is None else arguments, *inputs)

    def begin(self, steps: Sequence[int], rates: Tensor) -> None:
        """Say what step follows: after how many others, and with which learning rates.

        ``rates``: ``(models, 1)``, the schedule's factors included.
        """
        if not any(self.has.values()):
            return
        self._made = torch.tensor(steps, device=self.stack.weights.device)
        if self.techniques.change_by_step:
            self._now = self.techniques.at(steps, rows=self._rows)
        for name, part in self.techniques.parts.items():
            if part.uses_learning_rate:
                self._arguments[name]["learning_rate"] = rates.flatten().to(self.stack.weights)

    def select(self, losses: Tensor) -> Tensor:
        """The weight of each model's examples, from their losses, ``(models, examples)`` both."""
        weights: Tensor = self._each(Techniques.select, losses, self._made)
        return weights

    def change(self, hook: str) -> None:
        """Let a hook change the stack's weights, or its gradient (``gradient``), in this step."""
        if not self.has[hook]:
            return
        weights, gradients = map(self._trained, (self.stack.views, self.stack.gradient_views))
        both = {"perturbed": (weights, gradients), "gradient": (gradients, weights)}
        given = both.get(hook, (weights,))

        def of_model(techniques: Techniques, given: Any, state: Any, step: Any) -> Any:
            return techniques.changed(hook, *given, state=state, step=step), state

        changed, self.state = self._each(of_model, given, self.state, self._made)
        _copy(given[0], changed)

    def evaluated(self, rows: Tensor, weights: Tensor | None = None) -> dict[str, Tensor]:
        """The parameters of ``rows`` that are measured, laid out as those of the stack.

        ``weights``: the optimizer's, ``(rows, size)``, where it has others than the trained ones.
        """
        views = self.stack.views_of(self.stack.weights[rows] if weights is None else weights)
        if self.techniques.define("evaluated"):
            trained, state, arguments = (
                self._trained(views),
                _map(lambda value: value[rows], self.state),
                _map(lambda value: value[rows], self._arguments),
            )
            _copy(trained, self._each(Techniques.evaluated, trained, state, arguments=arguments))
        return views

    def keep(self, rows: Tensor) -> None:
        """Keep only ``rows``, as the stack does."""
        self._rows = [self._rows[row] for row in rows.tolist()]
        self._arguments = _map(lambda value: value[rows], self._arguments)
        self.state = _map(lambda value: value[rows], self.state)

    def add(self, other: StackedTechniques) -> None:
        """Append the rows of ``other``, as the stack does."""
        self._rows += other._rows
        self._arguments = _map(_joined, self._arguments, other._arguments)
        self.state = _map(_joined, self.state, other.state)

    def of_row(self, row: int) -> Any:
        """The state of a row, for ``restore``; the tensors are not copied."""
        return _map(lambda value: value[row], self.state)

    def restore(self, row: int, state: dict[str, Any]) -> None:
        """Set a row to its ``state``."""
        _map(lambda value, saved: value[row].copy_(saved), self.state, state)


def _copy(into: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    """Copy by name; tensors that a hook returned unchanged are left."""
    changed = [n for n, value in values.items() if value.data_ptr() != into[n].data_ptr()]
    if changed:
        torch._foreach_copy_([into[n] for n in changed], [values[n] for n in changed])


def _joined(value: Tensor, other: Tensor) -> Tensor:
    return torch.cat([value, other])


def _map(function: Callable[..., Any], *values: Any) -> Any:
    """``function`` of the tensors at each place of nested dictionaries."""
    if not isinstance(values[0], dict):
        return function(*values)
    return {name: _map(function, *(value[name] for value in values)) for name in values[0]}
