"""Muon (Jordan et al. 2024) for the hidden matrices of a model, AdamW for all else.

A matrix of shape (A, B) moves against the orthogonal factor of its momentum, about: five steps of a
Newton-Schulz iteration, in bfloat16 whatever the precision, as ``torch.optim.Muon`` has it. The
step is scaled by 0.2 sqrt(max(A, B)), so that its entries are as large as those of AdamW and one
learning rate and one weight decay serve both (Liu et al. 2025, arXiv:2502.16982, §2.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim._muon import DEFAULT_A, DEFAULT_B, DEFAULT_C, EPS

from experiments.optimizers.adam import AdamW
from experiments.optimizers.base import PackagedOptimizer
from experiments.optimizers.routed import Routed
from experiments.optimizers.stacked_update import (
    ParameterSlice,
    ParameterwiseUpdate,
    StackedUpdate,
)
from experiments.plan import Value

_DEFAULTS = {"momentum": 0.95, "weight_decay": 0.1, "nesterov": True, "ns_steps": 5}

ITERATION = torch.bfloat16
"""The precision of the iteration, as torch has it whatever that of the weights."""


def orthogonalized(matrices: Tensor, steps: Tensor, fewest: int, most: int) -> Tensor:
    """The nearest half-orthogonal matrix to each, about: the operations of ``torch.optim.Muon``.

    On a CPU a result does not depend on the other matrices. It has the bits of torch's where rows
    and columns are multiples of 16; else single entries differ in bfloat16's last bit, since
    batched products of ragged shapes add up in another order.

    Args:
        matrices: ``(models, matrices, rows, columns)``, not more rows than columns.
        steps: of each iteration, ``(models, matrices)``.
        fewest, most: bounds of ``steps``.
    """
    models, each, rows, size = matrices.shape
    x = matrices.reshape(models * each, rows, size)
    x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=EPS)
    for step in range(most):
        gram = torch.bmm(x, x.mT)
        polynomial = torch.baddbmm(gram, gram, gram, beta=DEFAULT_B, alpha=DEFAULT_C)
        moved = torch.baddbmm(x, polynomial, x, beta=DEFAULT_A)
        if step >= fewest:  # those with fewer steps stay where they are
            moved = torch.where((steps.flatten() > step)[:, None, None], moved, x)
        x = moved
    return x.view(models, each, rows, size)


class _StackedMuon(ParameterwiseUpdate):
    """All matrices of one shape, of all models, in one batched product."""

    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        self.state = {"momentum": torch.zeros_like(like)}
        self.fewest = int(values["ns_steps"].min())
        self.most = int(values["ns_steps"].max())
        self.all_nesterov = bool(values["nesterov"].all())
        self.batches: dict[tuple[int, ...], list[int]] = {}
        """The parameters of each shape, by their places in ``parameters``."""
        for i, parameter in enumerate(self.parameters):
            self.batches.setdefault(tuple(sorted(parameter.shape)), []).append(i)
        return {"1-momentum": 1 - values["momentum"]}

    def step_each(
        self,
        places: Sequence[ParameterSlice],
        weights: Tensor,
        gradient: Tensor,
        learning_rate: Tensor,
    ) -> None:
        values = self.values
        for (rows, columns), which in self.batches.items():
            batch = weights.new_empty((len(weights), len(which), rows, columns), dtype=ITERATION)
            for matrices, i in zip(batch.unbind(1), which, strict=True):
                update = self._direction(self.parameters[i], places[i].of(gradient))
                matrices.copy_(_wide(update.view(len(weights), *places[i].shape)))
            steps = torch.cat([self.parameters[i].column(values["ns_steps"]) for i in which], 1)
            made = orthogonalized(batch, steps, self.fewest, self.most)
            for moved, i in zip(made.unbind(1), which, strict=True):
                parameter, place = self.parameters[i], places[i]
                rate, moving = place.column(learning_rate), place.view(weights)
                if self.decays:
                    decay = parameter.column(values["weight_decay"])
                    moving.mul_((1 - rate * decay)[..., None])
                scale = 0.2 * math.sqrt(max(place.shape))
                moved = moved.mT if place.shape[0] > place.shape[1] else moved
                moving.sub_(moved * (rate * scale)[..., None])

    def _direction(self, parameter: ParameterSlice, gradient: Tensor) -> Tensor:
        """The momentum with this step's gradient, ``(models, numbers)``; one parameter at a time,
        since a pass over those of all models at once does not fit into a core's cache."""
        momentum = parameter.of(self.state["momentum"])
        rest, kept, nesterov = (
            parameter.column(self.values[name]) for name in ("1-momentum", "momentum", "nesterov")
        )
        momentum.add_((gradient - momentum).mul_(rest))
        update = (momentum - gradient).mul_(kept).add_(gradient)
        return update if self.all_nesterov else torch.where(nesterov != 0, update, momentum)

    def add(self, other: StackedUpdate) -> None:
        assert isinstance(other, _StackedMuon)
        super().add(other)
        self.fewest, self.most = min(self.fewest, other.fewest), max(self.most, other.most)
        self.all_nesterov = self.all_nesterov and other.all_nesterov


def _wide(matrices: Tensor) -> Tensor:
    return matrices.mT if matrices.shape[1] > matrices.shape[2] else matrices


class _Matrices(PackagedOptimizer):
    """Muon by itself."""

    name = "muon"
    decoupled_decay = True
    amplifies_rounding = True
    scope = "hidden matrices"
    kind = torch.optim.Muon
    form = _StackedMuon
    defaults: Mapping[str, Value] = {"learning_rate": 1e-3, **_DEFAULTS}
    space = AdamW.space

    def takes(self, shape: torch.Size, *, hidden: bool) -> bool:
        return len(shape) == 2 and hidden

    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        arguments = super().torch_arguments(metaparameters)
        return {
            **arguments,
            "nesterov": bool(arguments["nesterov"]),
            "ns_steps": int(arguments["ns_steps"]),
            "adjust_lr_fn": "match_rms_adamw",
        }


class Muon(Routed):
    """Hidden matrices are orthogonalized; AdamW trains vectors, embeddings and the output layer."""

    name = "muon"
    multiplies_matrices = True

    def __init__(self) -> None:
        super().__init__([("*", _Matrices()), ("*", AdamW())], named=False)
