"""How an optimizer updates a stack of models: row ``i`` of every ``(models, parameters)`` tensor
belongs to model ``i``, and every metaparameter is a column vector ``(models, 1)``.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

ALIGNMENT = 16
"""Every parameter begins at a multiple of so many numbers in a row: 64 bytes of float32."""


_BLOCK = 2**18
"""Numbers of a block of an elementwise update: a few tensors of it fit into a core's cache."""
ROW = 2**15
"""From so many numbers in a row on, a call for each model costs less than passes over blocks."""


Tensors = Mapping[str, Tensor]


class ParameterSlice(NamedTuple):
    """Where the numbers of a trainable parameter are in a row of ``(models, size)``."""

    name: str
    start: int
    shape: torch.Size

    def view(self, rows: Tensor) -> Tensor:
        """``(models, *shape)`` of ``(models, size)``; shares its memory."""
        flat = rows[:, self.start : self.start + self.shape.numel()]
        return flat.view(len(rows), *self.shape)

    def of(self, values: Tensor) -> Tensor:
        """The numbers of the parameter in ``(models, size)``; a column ``(models, 1)`` as it is."""
        end = self.start + self.shape.numel()
        return values if values.shape[1] == 1 else values[:, self.start : end]

    def column(self, values: Tensor) -> Tensor:
        """A metaparameter of each model for this parameter, ``(models, 1)``."""
        return self.of(values)[:, :1]


class Block(NamedTuple):
    """Some columns of a stack, ``(models, columns)`` each."""

    weights: Tensor
    gradient: Tensor
    scratch: Tensor
    """For intermediate results."""
    state: Mapping[str, Tensor]
    """The tensors of the state that are as large as the weights."""
    values: Mapping[str, Tensor]
    """Metaparameters and those of ``begin``; ``(models, 1)``, or columns of ``(models, size)``."""


class Group(NamedTuple):
    """Neighbouring models of a stack that share some values, ``(rows, size)`` each; or one model,
    whose values are all shared."""

    weights: Tensor
    gradient: Tensor
    scratch: Tensor
    """For intermediate results; contiguous, as are ``gradient`` and ``state``."""
    state: Mapping[str, Tensor]
    shared: Mapping[str, float]
    """The values of ``ElementwiseUpdate.shared``; of one model all metaparameters, and those of
    ``begin``."""
    values: Mapping[str, Tensor]
    """Metaparameters, and those of ``begin``, ``(rows, 1)``."""


class StackedUpdate(abc.ABC):
    """The state and the step of one optimizer over a stack of models.

    A model's bits must not depend on its row or on how many rows there are: only additions,
    multiplications, divisions, square roots and signs of whole tensors are used, one rounding each,
    and a fused multiply-add where it is the same for each row (``multiply_add``). Norms of a
    parameter are sums along a row (``norm_of_rows``).
    """

    def __init__(
        self, values: Mapping[str, Tensor], like: Tensor, parameters: Sequence[ParameterSlice] = ()
    ) -> None:
        """
        Args:
            values: metaparameters, float64, ``(models, 1)`` each; ``(models, size)`` where
                parameters have options of their own.
            like: the weights, ``(models, size)``.
            parameters: where each trainable parameter is in a row.
        """
        self.parameters = parameters
        self.state: dict[str, Tensor] = {}
        values = {**values, **self.initialize(values, like)}
        self.values = {name: v.to(like) for name, v in values.items()}
        self.decays = "weight_decay" in values and bool(values["weight_decay"].any())

    def initialize(self, values: Mapping[str, Tensor], like: Tensor) -> Mapping[str, Tensor]:
        """Fill ``state``, and return what is computed of ``values`` once, in float64."""
        return {}

    @abc.abstractmethod
    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        """Update ``weights`` in place; ``gradient`` may be overwritten."""

    def decay_into(self, gradient: Tensor, weights: Tensor) -> None:
        """L2 regularization: add weight decay times the weights to the gradient, in place."""
        if self.decays:
            multiply_add(gradient, weights, self.values["weight_decay"])

    def evaluated(self, weights: Tensor) -> Tensor | None:
        """The weights that evaluations measure, a new tensor; ``None``: the trained ones."""
        return None

    def keep(self, rows: Tensor) -> None:
        """Drop every model but ``rows`` (int64 indices)."""
        self.values = {name: v[rows] for name, v in self.values.items()}
        self.state = {name: v[rows] for name, v in self.state.items()}

    def add(self, other: StackedUpdate) -> None:
        """Append the models of ``other``, which has the same optimizer."""
        self.values = {n: torch.cat([v, other.values[n]]) for n, v in self.values.items()}
        self.state = {n: torch.cat([v, other.state[n]]) for n, v in self.state.items()}
        self.decays = self.decays or other.decays


class ElementwiseUpdate(StackedUpdate):
    """An update that treats every number alike: done in blocks of columns that fit into a cache,
    or by torch's kernels for one model: row by row where rows are long (``update_row``), and where
    they are short, for all neighbours that share what such a kernel takes (``update_group``).

    Which of them depends on the stack's columns alone, never on its rows.
    """

    decoupled = True
    """Whether weights shrink, instead of adding the decay to the gradient."""
    shared: tuple[str, ...] = ()
    """What the models of a group have in common: metaparameters, and values of ``begin``."""
    _scratch: Tensor | None = None

    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        uniform, size = self._is_uniform(weights, learning_rate), weights.shape[1]
        by_rows = uniform and self._has("update_row") and size >= ROW
        by_groups = uniform and self._has("update_group") and not by_rows
        if by_rows or by_groups:
            self._decay(weights, learning_rate)
        values = {**self.values, **self.begin(learning_rate)}
        state = {name: v for name, v in self.state.items() if v.shape == weights.shape}
        columns = {n: v for n, v in values.items() if v.shape[1] == 1}
        if by_rows:
            self._groups(self.update_row, weights, gradient, state, columns, tuple(columns), 1)
        elif by_groups:
            if not self.decoupled:
                self.decay_into(gradient, weights)
            most = max(1, _BLOCK // size)
            self._groups(self.update_group, weights, gradient, state, columns, self.shared, most)
        else:
            self._blocks(weights, gradient, state, values)

    def _has(self, form: str) -> bool:
        return getattr(type(self), form) is not getattr(ElementwiseUpdate, form)

    def _is_uniform(self, weights: Tensor, learning_rate: Tensor) -> bool:
        """Whether a model's numbers are all updated by the same values, on a CPU."""
        apart = {"weight_decay"} if self.decoupled or not self.decays else set()
        values = [v for name, v in self.values.items() if name not in apart]
        return weights.is_cpu and all(v.shape[1] == 1 for v in (learning_rate, *values))

    def _decay(self, weights: Tensor, learning_rate: Tensor) -> None:
        """Shrink the weights, if that is apart from the gradient."""
        if self.decoupled and self.decays:
            for parameter in self.parameters:
                decay = parameter.column(self.values["weight_decay"])
                parameter.of(weights).mul_(1 - learning_rate * decay)

    def _groups(
        self,
        update: Callable[[Group], None],
        weights: Tensor,
        gradient: Tensor,
        state: Tensors,
        columns: Tensors,
        shared: Sequence[str],
        most: int,
    ) -> None:
        """``update`` neighbours, at most so many, that have the columns ``shared`` in common."""
        keys = list(zip(*(columns[name].flatten().tolist() for name in shared), strict=True))
        models, size = weights.shape
        if self._scratch is None or self._scratch.shape != (min(most, models), size):
            self._scratch = weights.new_empty(min(most, models), size)
        start = 0
        while start < models:
            end = start + 1
            while end < min(models, start + most) and keys[end] == keys[start]:
                end += 1
            update(
                Group(
                    weights[start:end],
                    gradient[start:end].contiguous(),
                    self._scratch[: end - start],
                    {name: v[start:end] for name, v in state.items()},
                    dict(zip(shared, keys[start], strict=True)),
                    {name: v[start:end] for name, v in columns.items()},
                )
            )
            start = end

    def update_group(self, group: Group) -> None:
        """The step of models that share values; weight decay has been applied.

        The kernel may round elsewhere than ``update``, in each number alike: rows have a multiple
        of ``ALIGNMENT`` numbers, so that none is left for a loop of single ones.
        """
        raise NotImplementedError

    def update_row(self, row: Group) -> None:
        """The step of one model, by kernels that take several operations in one pass; decoupled
        weight decay has been applied.

        Such a kernel rounds elsewhere than ``update``, and in every row alike.
        """
        raise NotImplementedError

    def _blocks(self, weights: Tensor, gradient: Tensor, state: Tensors, values: Tensors) -> None:
        models, size = weights.shape
        width = size
        if weights.is_cpu:  # on a GPU each block would be a few more kernels
            width = min(size, max(_BLOCK // models // ALIGNMENT * ALIGNMENT, ALIGNMENT))
        if self._scratch is None or self._scratch.shape != (models, width):
            self._scratch = weights.new_empty(models, width)
        scratch = self._scratch
        for start in range(0, size, width):
            block = slice(start, min(start + width, size))
            self.update(
                Block(
                    weights[:, block],
                    gradient[:, block],
                    scratch[:, : block.stop - start],
                    {name: v[:, block] for name, v in state.items()},
                    {n: v if v.shape[1] == 1 else v[:, block] for n, v in values.items()},
                )
            )

    def shrinkage(self, learning_rate: Tensor) -> dict[str, Tensor]:
        """What ``shrink`` needs of ``begin``: columns alone, since a pass over all weights that is
        not done in blocks takes longer than the rest of the step."""
        decay = self.values["weight_decay"]
        if learning_rate.shape[1] == decay.shape[1] == 1:
            return {"shrinkage": 1 - learning_rate * decay}
        return {"decayed_rate": learning_rate}

    @staticmethod
    def shrink(block: Block) -> None:
        """weights <- (1 - learning rate · weight_decay) weights."""
        weights, values = block.weights, block.values
        if "shrinkage" in values:
            weights.mul_(values["shrinkage"])
        else:
            torch.mul(values["decayed_rate"], values["weight_decay"], out=block.scratch)
            weights.mul_(block.scratch.neg_().add_(1))

    @abc.abstractmethod
    def begin(self, learning_rate: Tensor) -> dict[str, Tensor]:
        """The values of this step, ``(models, 1)`` or ``(models, size)``; called once a step."""

    @abc.abstractmethod
    def update(self, block: Block) -> None:
        """The step of some columns."""


def norm_of_rows(rows: Tensor) -> Tensor:
    """The Euclidean norm of each row of ``(models, numbers)``, as ``(models, 1)``.

    A sum along the rows adds the numbers of each in the same order, whatever their number.
    """
    return (rows * rows).sum(dim=1, keepdim=True).sqrt_()


def multiply_add(sums: Tensor, factors: Tensor, values: Tensor) -> Tensor:
    """Add ``factors * values`` to ``sums``, in place: in one pass where ``values`` is a column.

    A row's last numbers, which the kernel does one by one, may be rounded otherwise than the others
    (a fused multiply-add); with a column they are the same ones in every row.
    """
    if values.shape[1] == 1:
        return sums.addcmul_(factors, values)
    return sums.add_(factors * values)
