"""How a stack of models is updated: the optimizer's fused form, or one optimizer for each model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from experiments.engines.base import gather
from experiments.engines.stack import Stack
from experiments.optimizers import Optimizer, StackedUpdate
from experiments.optimizers.base import RATE_FACTOR, Options, averages
from experiments.optimizers.groups import Rates, parameter_options
from experiments.optimizers.schedule_free import evaluated_weights
from experiments.plan import Trial
from experiments.schedules import Schedule
from experiments.training.study_context import StudyContext


class Update(Protocol):
    """Moves ``stack.weights`` by ``stack.gradient``."""

    def step(self, rates: Tensor) -> None:
        """One update; ``rates``: ``(width, 1)`` float64, the schedule's factor included."""

    def evaluated(self, rows: Tensor) -> Tensor | None:
        """The weights of ``rows`` that are measured, ``(rows, size)``; ``None`` for the trained."""

    def keep(self, rows: Tensor) -> None:
        """Keep only ``rows``, as the stack does."""

    def add(self, other: Any) -> None:
        """Append the rows of ``other``, which are at their first step, as the stack does."""

    def of_row(self, row: int) -> Any:
        """The state of a row, for ``restore``; the tensors are not copied."""

    def restore(self, row: int, saved: Any) -> None:
        """Set a row to its ``saved`` state."""


class FusedUpdate:
    """All models in a few whole-stack operations."""

    def __init__(self, form: StackedUpdate, stack: Stack, rate_factor: Tensor | None) -> None:
        """``rate_factor`` multiplies the learning rate of each number of a row; None for 1."""
        self.form, self.stack, self.rate_factor = form, stack, rate_factor
        self._trained = stack.trained_size
        """Numbers of a row that an update changes; those behind them are frozen."""

    def step(self, rates: Tensor) -> None:
        if self.rate_factor is not None:
            rates = rates * self.rate_factor
        weights = self.stack.weights[:, : self._trained]
        self.form.step(weights, self.stack.gradient[:, : self._trained], rates.to(weights.dtype))

    def evaluated(self, rows: Tensor) -> Tensor | None:
        whole = self.stack.weights
        weights = self.form.evaluated(whole[:, : self._trained])
        if weights is None:
            return None
        return torch.cat([weights[rows], whole[rows, self._trained :]], dim=1)

    def keep(self, rows: Tensor) -> None:
        self.form.keep(rows)

    def add(self, other: FusedUpdate) -> None:
        self.form.add(other.form)

    def of_row(self, row: int) -> Any:
        return {name: value[row] for name, value in self.form.state.items()}

    def restore(self, row: int, saved: Any) -> None:
        for name, value in self.form.state.items():
            value[row].copy_(saved[name])


@dataclass(kw_only=True)
class _Model:
    """The optimizer of one row, over parameters that are views of the stack."""

    parameters: dict[str, nn.Parameter]
    gradients: list[Tensor] = field(default_factory=list)
    """The gradients of the parameters, in their order; also views of the stack."""
    torch: torch.optim.Optimizer
    rates: Rates | None
    """``None`` if the schedule is constant: then the optimizer alone sets its rates."""
    base: float
    """The learning rate that the optimizer was made with."""

    def bind(self, stack: Stack, row: int) -> None:
        """Let the parameters be the row's views; to the optimizer they are the same as before."""
        weights, gradients = stack.views, stack.gradient_views
        for name, parameter in self.parameters.items():
            parameter.data = weights[name][row]
        self.gradients = [gradients[name][row] for name in self.parameters]


class SeparateUpdate:
    """Any ``torch.optim.Optimizer``: one for each model, as the model alone would have.

    It may make parameter groups of its own and keep whatever state it likes. A model's parameters
    stay the same objects while its row moves in the stack.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: Schedule,
        trials: Sequence[Trial],
        stack: Stack,
        options: Mapping[str, Options],
    ) -> None:
        self.optimizer, self.schedule, self.stack = optimizer, schedule, stack
        self.options = options
        self.trials = list(trials)
        self.models = [self._made(trial, row) for row, trial in enumerate(trials)]

    def _made(self, trial: Trial, row: int) -> _Model:
        views = self.stack.views
        parameters = {name: nn.Parameter(views[name][row]) for name in self.stack.trainable}
        values = self.optimizer.arguments_in(trial.metaparameters)
        made = self.optimizer.module(parameters.items(), values, self.options)
        constant = self.schedule.is_constant(trial.metaparameters)
        model = _Model(
            parameters=parameters,
            torch=made,
            rates=None if constant else Rates(made, self.optimizer.name),
            base=self.optimizer.learning_rate(values),
        )
        model.bind(self.stack, row)
        return model

    def step(self, rates: Tensor) -> None:
        with torch.enable_grad():
            for model, rate in zip(self.models, rates.flatten().tolist(), strict=True):
                pairs = zip(model.parameters.values(), model.gradients, strict=True)
                for parameter, gradient in pairs:
                    parameter.grad = gradient
                if model.rates is not None:
                    model.rates.scale(rate / model.base if model.base else 1.0)
                model.torch.step()

    def evaluated(self, rows: Tensor) -> Tensor | None:
        if not averages(self.models[0].torch):
            return None
        weights = self.stack.weights[rows]
        views = self.stack.views_of(weights)
        for i, row in enumerate(rows.tolist()):
            model = self.models[row]
            with evaluated_weights(model.torch):
                for name, parameter in model.parameters.items():
                    views[name][i].copy_(parameter.data)
        return weights

    def keep(self, rows: Tensor) -> None:
        picked = rows.tolist()
        trials, models = self.trials, self.models
        self.trials, self.models = [trials[row] for row in picked], []
        taken: set[int] = set()
        for row, source in enumerate(picked):
            if source in taken:  # repeated to fill the stack, and never read: one that begins
                self.models.append(self._made(trials[source], row))
            else:
                models[source].bind(self.stack, row)
                self.models.append(models[source])
                taken.add(source)

    def add(self, other: SeparateUpdate) -> None:
        self.trials += other.trials
        self.models += other.models
        for row, model in enumerate(self.models):
            model.bind(self.stack, row)

    def of_row(self, row: int) -> Any:
        return self.models[row].torch.state_dict()

    def restore(self, row: int, saved: Any) -> None:
        # An optimizer keeps what it is given and changes it in place.
        self.models[row].torch.load_state_dict(gather(saved))


def make_update(context: StudyContext, trials: Sequence[Trial], stack: Stack) -> Update:
    """The fused form where the optimizer has one.

    ``trials``: one a row of the stack.
    """
    optimizer = context.optimizer
    parameters = {name: stack.views[name][0] for name in stack.trainable}
    options = parameter_options(
        optimizer, context.workload, parameters, context.techniques, stack.names
    )
    values = [optimizer.arguments_in(t.metaparameters) for t in trials]
    vectors = _vectors(stack, options)
    trained = stack.weights[:, : stack.trained_size]
    form = optimizer.stacked(values, trained, vectors, stack.slices)
    if form is None:
        return SeparateUpdate(optimizer, context.schedule, trials, stack, options)
    factor = vectors.get(RATE_FACTOR)
    return FusedUpdate(form, stack, None if factor is None else factor.nan_to_num(nan=1.0))


def learning_rates(
    context: StudyContext, trials: Sequence[Trial]
) -> Callable[[Sequence[int]], Tensor]:
    """The learning rates of rows that have taken so many steps, ``(models, 1)`` float64 of the
    host."""
    schedule, values = context.schedule, [trial.metaparameters for trial in trials]
    of_trials = [[context.optimizer.learning_rate(each)] for each in values]
    rates = torch.tensor(of_trials, dtype=torch.float64)
    if all(schedule.is_constant(each) for each in values):
        return lambda steps: rates  # noqa: ARG005
    factors = schedule.factors_of(values)
    return lambda steps: rates * factors(steps)


def _vectors(stack: Stack, options: Mapping[str, Options]) -> dict[str, Tensor]:
    """Each option at each trained number of a row, float64; NaN where a parameter does not have
    it."""
    vectors: dict[str, Tensor] = {}
    for name, start, shape in zip(stack.names, stack.offsets, stack.shapes, strict=False):
        for option, value in options.get(name, {}).items():
            if option not in vectors:
                vectors[option] = stack.weights.new_full(
                    (stack.trained_size,), math.nan, dtype=torch.float64
                )
            vectors[option][start : start + shape.numel()] = value
    return vectors
