"""Muon (Jordan et al. 2024) for the hidden matrices of a model, AdamW for all else.

A matrix of shape (A, B) moves against the orthogonal factor of its momentum, about: five steps of a
Newton-Schulz iteration, in bfloat16 whatever the precision, as ``torch.optim.Muon`` has it. The
step is scaled by 0.2 sqrt(max(A, B)), so that its entries are as large as those of AdamW and one
learning rate and one weight decay serve both (Liu et al. 2025, arXiv:2502.16982, §2.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.optim._muon import DEFAULT_A, DEFAULT_B, DEFAULT_C, EPS

from experiments.errors import ExperimentError
from experiments.optimizers.adam import AdamW
from experiments.optimizers.base import (
    HIDDEN,
    RATE_FACTOR,
    Named,
    Options,
    PackagedOptimizer,
    columns,
)
from experiments.optimizers.stacked_update import ALIGNMENT, ParameterSlice, StackedUpdate
from experiments.search.space import Value

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


class Columns:
    """The numbers of some parameters in a row, as a shorter row.

    Args:
        places: where they are in a row, in that order.
        size: numbers of a row.
    """

    def __init__(self, places: Iterable[ParameterSlice], size: int) -> None:
        self.parameters: list[ParameterSlice] = []
        """Where they are in the shorter row; they begin at multiples of ``ALIGNMENT`` there too."""
        self.runs: list[tuple[int, int]] = []
        """First number and end of what stands side by side in the row."""
        length = 0
        for name, start, shape in places:
            self.parameters.append(ParameterSlice(name, length, shape))
            end = min(start + -(-shape.numel() // ALIGNMENT) * ALIGNMENT, size)
            length += end - start
            if self.runs and self.runs[-1][1] == start:
                start = self.runs.pop()[0]
            self.runs.append((start, end))

    def of(self, rows: Tensor) -> Tensor:
        """``(models, shorter)`` of ``(models, size)``: a view of a single run, else a copy."""
        views = [rows[:, start:end] for start, end in self.runs]
        return views[0] if len(views) == 1 else torch.cat(views, 1)

    def put(self, values: Tensor, rows: Tensor) -> None:
        """Write a shorter row's ``values`` to their places in ``rows``."""
        sizes = [end - start for start, end in self.runs]
        for (start, end), part in zip(self.runs, values.split(sizes, 1), strict=True):
            rows[:, start:end].copy_(part)


class _StackedMuon(StackedUpdate):
    """All matrices of one shape, of all models, in one batched product; and AdamW's update of the
    other parameters, if there are any."""

    def __init__(
        self,
        values: Mapping[str, Tensor],
        like: Tensor,
        matrices: Sequence[ParameterSlice],
        adamw: tuple[StackedUpdate, Columns] | None,
    ) -> None:
        """``values``: ``(models, 1)``, or ``(models, matrices)``."""
        super().__init__(values, like, matrices)
        self.adamw = adamw
        self._add_state_of_adamw()

    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        self.fewest = int(values["ns_steps"].min())
        self.most = int(values["ns_steps"].max())
        self.all_nesterov = bool(values["nesterov"].all())
        self.batches: dict[tuple[int, ...], list[int]] = {}
        """The matrices of each shape, by their places in ``parameters``."""
        for i, parameter in enumerate(self.parameters):
            self.batches.setdefault(tuple(sorted(parameter.shape)), []).append(i)
        self.state = {
            parameter.name: torch.zeros_like(parameter.of(like)) for parameter in self.parameters
        }
        return {"1-momentum": 1 - values["momentum"]}

    def _add_state_of_adamw(self) -> None:
        """The states of both, which the engine copies, keeps and restores."""
        of_adamw = self.adamw[0].state if self.adamw else {}
        self.state |= {f"adamw: {name}": value for name, value in of_adamw.items()}

    def _value(self, name: str, i: int) -> Tensor:
        """A metaparameter of each model for matrix ``i``, ``(models, 1)``."""
        values = self.values[name]
        return values if values.shape[1] == 1 else values[:, i : i + 1]

    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        for shape, which in self.batches.items():
            batch = weights.new_empty((len(weights), len(which), *shape), dtype=ITERATION)
            for matrices, i in zip(batch.unbind(1), which, strict=True):
                update = self._direction(i, gradient)
                matrices.copy_(_wide(update.view(len(weights), *self.parameters[i].shape)))
            steps = torch.cat([self._value("ns_steps", i) for i in which], 1)
            made = orthogonalized(batch, steps, self.fewest, self.most)
            for moved, i in zip(made.unbind(1), which, strict=True):
                place = self.parameters[i]
                rate, moving = place.column(learning_rate), place.view(weights)
                if self.decays:
                    moving.mul_((1 - rate * self._value("weight_decay", i))[..., None])
                scale = 0.2 * math.sqrt(max(place.shape))
                moved = moved.mT if place.shape[0] > place.shape[1] else moved
                moving.sub_(moved * (rate * scale)[..., None])
        if self.adamw:
            form, rest = self.adamw
            rate = rest.of(learning_rate) if learning_rate.shape[1] > 1 else learning_rate
            moving = rest.of(weights)
            form.step(moving, rest.of(gradient), rate * self.values[_RATIO])
            if len(rest.runs) > 1:
                rest.put(moving, weights)

    def _direction(self, i: int, gradients: Tensor) -> Tensor:
        """The momentum with this step's gradient, ``(models, numbers)``; one parameter at a time,
        since a pass over those of all models at once does not fit into a core's cache."""
        parameter = self.parameters[i]
        momentum, gradient = self.state[parameter.name], parameter.of(gradients)
        rest, kept, nesterov = (
            self._value(name, i) for name in ("1-momentum", "momentum", "nesterov")
        )
        momentum.add_((gradient - momentum).mul_(rest))
        update = (momentum - gradient).mul_(kept).add_(gradient)
        return update if self.all_nesterov else torch.where(nesterov != 0, update, momentum)

    def keep(self, rows: Tensor) -> None:
        super().keep(rows)
        if self.adamw:
            self.adamw[0].keep(rows)
        self._add_state_of_adamw()

    def add(self, other: StackedUpdate) -> None:
        assert isinstance(other, _StackedMuon)
        super().add(other)
        self.fewest, self.most = min(self.fewest, other.fewest), max(self.most, other.most)
        self.all_nesterov = self.all_nesterov and other.all_nesterov
        if self.adamw and other.adamw:
            self.adamw[0].add(other.adamw[0])
        self._add_state_of_adamw()


def _wide(matrices: Tensor) -> Tensor:
    return matrices.mT if matrices.shape[1] > matrices.shape[2] else matrices


class MuonAdamW(torch.optim.Optimizer):
    """torch's Muon and AdamW of disjoint parameters: groups in a row, state together."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = list(parts)
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    def _share(self) -> None:
        groups = iter(self.param_groups)
        for part in self.parts:
            part.param_groups = [next(groups) for _ in part.param_groups]
            part.state = self.state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    def step(self, closure: Any = None) -> Any:
        """A step of each."""
        for part in self.parts:
            part.step()


class _Matrices(PackagedOptimizer):
    """Muon by itself."""

    kind = torch.optim.Muon
    defaults: Mapping[str, Value] = {
        "learning_rate": 1e-3,
        "momentum": 0.95,
        "weight_decay": 0.1,
        "nesterov": True,
        "ns_steps": 5,
    }

    def torch_arguments(self, metaparameters: Mapping[str, Value]) -> dict[str, Any]:
        return {**super().torch_arguments(metaparameters), "adjust_lr_fn": "match_rms_adamw"}


_MATRICES, _ADAMW = _Matrices(), AdamW()
_PREFIX = "adamw."
_RATIO = "learning rate of AdamW over that of Muon"


class Muon(PackagedOptimizer):
    """Hidden matrices are orthogonalized; AdamW trains vectors, embeddings and the output layer.

    A hidden matrix is a parameter of two dimensions whose option ``hidden`` is not false. Learning
    rate and weight decay are those of both, unless ``adamw.learning_rate`` or
    ``adamw.weight_decay`` gives AdamW its own.
    """

    name = "muon"
    decoupled_decay = True
    multiplies_matrices = True
    amplifies_rounding = True
    uses_hidden = True
    kind = MuonAdamW
    defaults: Mapping[str, Value] = {**AdamW.defaults, **_Matrices.defaults}
    space = AdamW.space

    def __init__(self) -> None:
        super().__init__()
        self.arguments |= {f"{_PREFIX}{name}" for name in ("learning_rate", "weight_decay")}

    def whole(
        self, shapes: Mapping[str, torch.Size], options: Mapping[str, Options]
    ) -> frozenset[str]:
        """The hidden matrices.

        Raises:
            ExperimentError: there is none.
        """
        hidden = _hidden(shapes, options)
        if not hidden:
            raise ExperimentError(
                "optimizer muon takes hidden matrices, and no parameter of the model is one",
                hint="choose another optimizer, such as adamw",
            )
        return hidden

    def module(
        self,
        named_parameters: Iterable[Named],
        metaparameters: Mapping[str, Value],
        options: Mapping[str, Options] = MappingProxyType({}),
    ) -> torch.optim.Optimizer:
        pairs = list(named_parameters)
        # They may be those of a pipeline's stage, which need not have a hidden matrix.
        hidden = _hidden({name: p.shape for name, p in pairs}, options)
        values = {**self.defaults, **metaparameters}
        parts = []
        for optimizer, of, is_hidden in (
            (_MATRICES, _of_matrices, True),
            (_ADAMW, _of_adamw, False),
        ):
            members = [pair for pair in pairs if (pair[0] in hidden) == is_hidden]
            given = {name: of(options.get(name, {})) for name, _ in members}
            given = {name: chosen for name, chosen in given.items() if chosen}
            if members:
                parts.append(optimizer.module(members, of(values), given))
        return MuonAdamW(parts)

    def stacked(
        self,
        metaparameters: Sequence[Mapping[str, Value]],
        like: Tensor,
        options: Mapping[str, Tensor],
        parameters: Sequence[ParameterSlice],
    ) -> StackedUpdate:
        values = [{**self.defaults, **m} for m in metaparameters]
        of_hidden = options.get(HIDDEN, like.new_ones(like.shape[1]))
        given = {p.name: {HIDDEN: float(of_hidden[p.start])} for p in parameters}
        hidden = self.whole({p.name: p.shape for p in parameters}, given)
        matrices = [p for p in parameters if p.name in hidden]
        rest = Columns([p for p in parameters if p.name not in hidden], like.shape[1])
        adamw = None
        if rest.parameters:
            vectors = {name: rest.of(v[None])[0] for name, v in _of_adamw(options).items()}
            form = _ADAMW.stacked(
                [_of_adamw(m) for m in values], rest.of(like), vectors, rest.parameters
            )
            assert form is not None
            adamw = form, rest
        at_matrices = {name: v[[p.start for p in matrices]] for name, v in options.items()}
        made = columns(values, _MATRICES.arguments - {"learning_rate"}, at_matrices)
        ratios = torch.tensor([[_ratio(m)] for m in values], dtype=torch.float64)
        return _StackedMuon({**made, _RATIO: ratios}, like, matrices, adamw)


def _hidden(shapes: Mapping[str, torch.Size], options: Mapping[str, Options]) -> frozenset[str]:
    return frozenset(
        name
        for name, shape in shapes.items()
        if len(shape) == 2 and options.get(name, {}).get(HIDDEN, True)
    )


def _of_matrices(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of metaparameters, or of options of parameters, that Muon has."""
    return {n: values[n] for n in (*_MATRICES.arguments, RATE_FACTOR) if n in values}


def _of_adamw(values: Mapping[str, Any]) -> dict[str, Any]:
    """As ``_of_matrices``, of AdamW: ``adamw.learning_rate`` goes before ``learning_rate``."""
    own = {n.removeprefix(_PREFIX): v for n, v in values.items() if n.startswith(_PREFIX)}
    given = {**values, **own}
    return {n: given[n] for n in (*_ADAMW.arguments, RATE_FACTOR) if n in given}


def _ratio(metaparameters: Mapping[str, Value]) -> float:
    """AdamW's learning rate in multiples of the shared one, which the engine gives."""
    shared = float(metaparameters["learning_rate"])
    rate = float(metaparameters.get(f"{_PREFIX}learning_rate", shared))
    if shared == 0.0 != rate:
        message = f"learning_rate is 0, and {_PREFIX}learning_rate is {rate}"
        raise ExperimentError(message, hint="give both a rate")
    return rate / shared if shared else 1.0
