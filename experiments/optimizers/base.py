"""What an optimizer is to the engines: legal arguments, a default search space, and two forms.

The *module* form is a ``torch.optim.Optimizer`` over one model's parameters. The *stacked* form
updates many models at once: row ``i`` of every ``(models, parameters)`` tensor belongs to model
``i``, and every metaparameter is a column vector ``(models, 1)``.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from experiments.plan import Value
from results.optimizers import class_name

Space = Mapping[str, Any]
"""Metaparameter name -> a range as written in an experiment file, or a fixed value."""
Named = tuple[str, torch.nn.Parameter]
"""A parameter with its name in the model."""


class StackedUpdate(abc.ABC):
    """The state and the step of one optimizer over a stack of models.

    Only additions, multiplications, divisions and square roots of whole tensors are used, one
    rounding each (no fused multiply-add): a model's bits then do not depend on its row or on how
    many rows there are.
    """

    def __init__(self, values: Mapping[str, Tensor], like: Tensor) -> None:
        """``values``: ``(models, 1)`` float64 each; ``like``: the weights ``(models, size)``."""
        self.values = {name: v.to(like) for name, v in values.items()}
        self.decays = "weight_decay" in values and bool(values["weight_decay"].any())
        self.state: dict[str, Tensor] = {}

    @abc.abstractmethod
    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        """Update ``weights`` in place; ``gradient`` may be overwritten."""

    def keep(self, rows: Tensor) -> None:
        """Drop every model but ``rows`` (int64 indices)."""
        self.values = {name: v[rows] for name, v in self.values.items()}
        self.state = {name: v[rows] for name, v in self.state.items()}

    def add(self, other: StackedUpdate) -> None:
        """Put the models of ``other``, of the same optimizer, behind these."""
        self.values = {n: torch.cat([v, other.values[n]]) for n, v in self.values.items()}
        self.state = {n: torch.cat([v, other.state[n]]) for n, v in self.state.items()}
        self.decays = self.decays or other.decays


class Optimizer(abc.ABC):
    """One entry of the registry: ``experiments.optimizers.get(name)``."""

    name: str
    """What loads it: a registered name, a class of ``torch.optim``, or ``file.py:Class``."""
    display_name: str | None = None
    """As an experiment gives it: ``file.py:Class as NAME``."""
    space: Space
    arguments: frozenset[str]
    defaults: Mapping[str, Value]
    """What a metaparameter is where nothing says it; torch's, and none where torch has none."""

    @property
    def label(self) -> str:
        """What tables, figures and messages call it: without a display name its class."""
        return self.display_name or class_name(self.name)

    @abc.abstractmethod
    def module(
        self, named_parameters: Iterable[Named], metaparameters: Mapping[str, Value]
    ) -> torch.optim.Optimizer:
        """The optimizer of one model, over its trainable parameters."""

    def stacked(
        self,
        metaparameters: Sequence[Mapping[str, Value]],  # noqa: ARG002 - a hook
        like: Tensor,  # noqa: ARG002
    ) -> StackedUpdate | None:
        """The fused form for one model a row of ``like``, or ``None``: there is none."""
        return None

    def effective_learning_rate(
        self,
        metaparameters: Mapping[str, Value],  # noqa: ARG002
    ) -> float | None:
        """learning rate / (1 - momentum), or ``None`` where that has no meaning."""
        return None

    def own(self, metaparameters: Mapping[str, Value]) -> dict[str, Value]:
        """The part of a trial's metaparameters that this optimizer takes."""
        return {k: v for k, v in metaparameters.items() if k in self.arguments}


def columns(
    metaparameters: Sequence[Mapping[str, Value]], defaults: Mapping[str, float]
) -> dict[str, Tensor]:
    """One ``(models, 1)`` float64 column a metaparameter of ``defaults``."""
    return {
        name: torch.tensor(
            [[float(m.get(name, default))] for m in metaparameters], dtype=torch.float64
        )
        for name, default in defaults.items()
    }


def decay_into_gradient(weights: Tensor, gradient: Tensor, weight_decay: Tensor) -> None:
    """L2 regularization: add ``weight_decay * weights`` to the gradient, in place."""
    gradient.add_(weights * weight_decay)
