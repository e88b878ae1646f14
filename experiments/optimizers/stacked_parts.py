"""Several stacked optimizers over one stack, each on the numbers of its parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from experiments.optimizers.stacked_update import (
    ALIGNMENT,
    ParameterSlice,
    ParameterwiseUpdate,
    StackedUpdate,
)


class Columns:
    """The numbers of some parameters in a row, as a shorter row.

    Args:
        places: where they are in a row, in that order.
        size: numbers of a row.
    """

    def __init__(self, places: Sequence[ParameterSlice], size: int) -> None:
        self.places = places
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
        return views[0] if len(views) == 1 else torch.cat([rows[:, :0], *views], 1)

    def put(self, values: Tensor, rows: Tensor) -> None:
        """Write a shorter row's ``values`` to their places in ``rows``."""
        sizes = [end - start for start, end in self.runs]
        for (start, end), part in zip(self.runs, values.split(sizes, 1), strict=True):
            rows[:, start:end].copy_(part)


class Part(NamedTuple):
    """One of the optimizers."""

    form: StackedUpdate
    columns: Columns
    rate: str | None
    """The name of the factor of its learning rate, if it has a rate of its own."""


class StackedParts(StackedUpdate):
    """The optimizers of a stack as one."""

    def __init__(self, parts: Sequence[Part], rates: Mapping[str, Tensor], like: Tensor) -> None:
        """``rates``: ``(models, 1)`` float64, by which the learning rate is multiplied."""
        super().__init__(rates, like)
        self.parts = list(parts)
        self._collect()

    def _collect(self) -> None:
        """The states of all, which the engine copies, keeps and restores."""
        self.state = {
            f"{i}.{name}": value
            for i, part in enumerate(self.parts)
            for name, value in part.form.state.items()
        }

    def step(self, weights: Tensor, gradient: Tensor, learning_rate: Tensor) -> None:
        for form, columns, name in self.parts:
            rate = learning_rate if name is None else learning_rate * self.values[name]
            if isinstance(form, ParameterwiseUpdate):
                form.step_each(columns.places, weights, gradient, rate)
                continue
            rate = columns.of(rate) if rate.shape[1] > 1 else rate
            moved = columns.of(weights)
            form.step(moved, columns.of(gradient), rate)
            if len(columns.runs) > 1:
                columns.put(moved, weights)

    def evaluated(self, weights: Tensor) -> Tensor | None:
        measured = None
        for form, columns, _ in self.parts:
            values = form.evaluated(columns.of(weights))
            if values is not None:
                measured = weights.clone() if measured is None else measured
                columns.put(values, measured)
        return measured

    def keep(self, rows: Tensor) -> None:
        self.values = {name: value[rows] for name, value in self.values.items()}
        for part in self.parts:
            part.form.keep(rows)
        self._collect()

    def add(self, other: StackedUpdate) -> None:
        assert isinstance(other, StackedParts)
        self.values = {n: torch.cat([v, other.values[n]]) for n, v in self.values.items()}
        for part, added in zip(self.parts, other.parts, strict=True):
            part.form.add(added.form)
        self._collect()
