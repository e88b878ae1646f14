"""An optimizer of a model whose parameters are cut: of a rank's parts, or of whole parameters.

An optimizer that moves each entry by itself gets this rank's parts, as plain tensors in the
model's own memory. What needs a parameter whole (a norm, a product of matrices) gets a copy of it:
before each step its gradient is gathered, every rank makes the same update, and takes its part.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from experiments.parallel.pieces import Pieces, local


@dataclass(frozen=True)
class _Trained:
    of_model: nn.Parameter
    updated: nn.Parameter
    """What the optimizer has."""
    whole: bool
    """Whether that is a copy of the whole parameter."""


class CutParameters:
    """The parameters of a model for its optimizer.

    Args:
        whole: names of those that the optimizer needs whole.
    """

    def __init__(self, model: nn.Module, pieces: Pieces, whole: Collection[str]) -> None:
        self.pieces = pieces
        self.trained: dict[str, _Trained] = {}
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            is_whole = name in whole and self.pieces[name].is_cut
            part = local(parameter).detach()
            updated = nn.Parameter(pieces.gather(name, part) if is_whole else part)
            self.trained[name] = _Trained(parameter, updated, is_whole)

    def named(self) -> list[tuple[str, nn.Parameter]]:
        """What the optimizer updates."""
        return [(name, each.updated) for name, each in self.trained.items()]

    @torch.no_grad()
    def take_gradients(self) -> None:
        """Give the optimizer's parameters the gradients of the model's."""
        for name, each in self.trained.items():
            if each.of_model.grad is None:
                each.updated.grad = None
                continue
            gradient = local(each.of_model.grad)
            each.updated.grad = self.pieces.gather(name, gradient) if each.whole else gradient

    @torch.no_grad()
    def publish(self) -> None:
        """Give the model its part of the parameters of which the optimizer has copies."""
        for name, each in self.trained.items():
            if each.whole:
                part = self.pieces.part(name, each.updated)
                local(each.of_model).copy_(part)

    def whole_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """The state of the optimizer, as over whole parameters."""
        state = optimizer.state_dict()
        names = self.names(optimizer)
        whole = {
            index: {
                key: self.pieces.gather(names[index], value)
                if self._is_cut(names[index], value)
                else value
                for key, value in entries.items()
            }
            for index, entries in state["state"].items()
        }
        return {**state, "state": whole}

    def load(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        """Continue from a state over whole parameters, and from the model's present weights."""
        names = self.names(optimizer)
        for name, each in self.trained.items():
            if each.whole:
                each.updated.detach().copy_(self.pieces.gather(name, local(each.of_model)))
        parts = {
            index: {key: self._part(names[index], value) for key, value in entries.items()}
            for index, entries in state["state"].items()
        }
        optimizer.load_state_dict({**state, "state": parts})

    def names(self, optimizer: torch.optim.Optimizer) -> list[str]:
        """The names of the optimizer's parameters, in the order of its state."""
        names = {id(each.updated): name for name, each in self.trained.items()}
        return [names[id(p)] for group in optimizer.param_groups for p in group["params"]]

    def _is_cut(self, name: str, value: Any) -> bool:
        """Whether it is this rank's part of a tensor that has an entry for each of a parameter."""
        each = self.trained[name]
        is_like = isinstance(value, Tensor) and value.shape == each.updated.shape
        return is_like and self.pieces[name].is_cut and not each.whole

    def _part(self, name: str, value: Any) -> Any:
        each = self.trained[name]
        is_like = isinstance(value, Tensor) and value.shape == self.pieces.shapes[name]
        if is_like and self.pieces[name].is_cut and not each.whole:
            return self.pieces.part(name, value)
        return value
