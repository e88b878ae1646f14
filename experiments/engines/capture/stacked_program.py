"""The steps of a stack of models as a captured step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments.engines.capture import captured_step
from experiments.engines.capture.batches import capturable, fetched, most_steps, step_inputs
from experiments.engines.capture.captured_step import Program, StepInputs
from experiments.engines.randomness import key_of
from experiments.engines.stack import StackedStep
from experiments.engines.updates import FusedUpdate, Update
from experiments.identity import optimizer_identity
from experiments.optimizers.stacked_update import StackedUpdate
from experiments.plan import Trial
from experiments.training.study_context import StudyContext
from workloads import Batch

_KNOWN = ("parameters", "state", "values", "parts", "batches", "_scratch")
"""Attributes of an update that are tensors, or the same for one shape and one optimizer."""


@dataclass(frozen=True, kw_only=True)
class StackInTraining:
    """A stack of models, each at its own step, as captured steps need it."""

    stepper: StackedStep
    update: Update
    loss_sum: Tensor
    micro: int
    """Examples of one model in a forward pass."""
    trials: Sequence[Trial]
    """Of each row."""
    taken: Sequence[int]
    """Steps that each row has taken."""
    first: int
    """The step that tells the batch size."""
    indices: Callable[[int, int], Tensor]
    """The examples of some steps, ``(steps, models, examples)``, from the number of the first one,
    counted from the present step, and how many."""

    @property
    def size(self) -> int:
        """The global batch size."""
        return self.stepper.context.study.batches.size(self.first)

    def reads(self) -> Callable[[int, int], dict[str, Tensor]]:
        """See ``inputs_of``."""
        context, random = self.stepper.context, bool(self.stepper.draws)
        return inputs_of(context, self.trials, self.taken, random=random)


def advance_captured(
    of: StackInTraining, steps: int, batches: Callable[[], Iterator[tuple[int, Batch]]]
) -> bool:
    """Take so many steps as captured ones, if they can be: whether they are taken.

    ``batches``: as ``step_inputs`` has them.
    """
    program = _program_of(of)
    if program is None or not isinstance(of.update, FusedUpdate):
        return False
    context, most = of.stepper.context, program.inputs.steps
    inputs = step_inputs(context, steps, most, of.indices, batches, of.reads())
    return program.advance(state_of(of.update, of.loss_sum), settings_of(of.update), inputs)


def _program_of(of: StackInTraining) -> Program | None:
    """The program for steps of the present batch size, which has a stack of its own; ``None``: they
    cannot be captured."""
    stepper, update, loss_sum, micro = of.stepper, of.update, of.loss_sum, of.micro
    context = stepper.context
    if not capturable(context) or not isinstance(update, FusedUpdate):
        return None
    plain = numbers(update.form)
    if plain is None:
        return None
    size, part = of.size, context.part(of.first)
    optimizer = optimizer_identity(context.optimizer, context.study.workload.base)
    shapes = [x.shape for x in (*state_of(update, loss_sum), *settings_of(update))]
    text = json.dumps([optimizer, plain, shapes, size, part.stop, micro, context.precision.name])
    key = ("stacked", text, stepper.identity, context.splits["train"])

    def make() -> Program:
        stack, own_update = deepcopy((stepper.stack, update))
        own = StackedStep(context, stepper.base, stack, stepper.draws)
        losses = loss_sum.clone()
        examples = part.stop - part.start
        starts = {
            low: torch.tensor(part.start + low, device=context.device)
            for low in range(0, examples, micro)
        }

        def take(inputs: StepInputs) -> None:
            batch = fetched(context, inputs)
            for low in starts:
                rows = batch if examples <= micro else tuple(x[:, low : low + micro] for x in batch)
                random = (inputs["keys"], starts[low]) if stepper.draws else ()
                losses.add_(own.add_gradient(rows, random, size, first=low == 0))
            own_update.step(inputs["rates"])

        return Program(
            take,
            context.device,
            f"{context.workload.name} in a stack of {stack.width}",
            state=state_of(own_update, losses),
            settings=settings_of(own_update),
            steps=most_steps(context, stack.width * examples),
        )

    made = captured_step.program(key, make)
    return made if made.step.refusal is None else None


def rates_of(
    context: StudyContext, trials: Sequence[Trial]
) -> tuple[bool, Callable[[Sequence[int]], Tensor], Tensor]:
    """Whether the learning rates of these rows are constant, their factors at given steps, and the
    rates, ``(models, 1)`` float64 of the host."""
    schedule, values = context.schedule, [trial.metaparameters for trial in trials]
    rates = [[float(each.get("learning_rate", 1.0))] for each in values]
    constant = all(schedule.is_constant(each) for each in values)
    return constant, schedule.factors_of(values), torch.tensor(rates, dtype=torch.float64)


def inputs_of(
    context: StudyContext, trials: Sequence[Trial], steps: Sequence[int], *, random: bool
) -> Callable[[int, int], dict[str, Tensor]]:
    """What captured steps of these rows read besides examples: of how many, from how many on after
    the present ``steps``; ``random``: whether forward passes draw random numbers."""
    constant, factors, rates = rates_of(context, trials)

    def read(first: int, count: int) -> dict[str, Tensor]:
        ats = [[step + i for step in steps] for i in range(first, first + count)]
        inputs = {"rates": rates.repeat(count, 1, 1)}
        if not constant:
            inputs["rates"] = torch.stack([rates * factors(at) for at in ats])
        if random:
            keys = [[key_of(t.seed, at) for t, at in zip(trials, row, strict=True)] for row in ats]
            inputs["keys"] = torch.tensor(keys)
        return inputs

    return read


def state_of(update: FusedUpdate, loss_sum: Tensor) -> list[Tensor]:
    """What steps change."""
    return [update.stack.weights, loss_sum, *update.form.state.values()]


def settings_of(update: FusedUpdate) -> list[Tensor]:
    """What steps read, of these trials."""
    factor = [] if update.rate_factor is None else [update.rate_factor]
    return [*factor, *update.form.values.values(), *_of_parts(update.form)]


def _of_parts(form: StackedUpdate) -> list[Tensor]:
    return [v for part in getattr(form, "parts", ()) for v in part.form.values.values()]


def numbers(form: StackedUpdate) -> Mapping[str, Any] | None:
    """What an update has besides tensors, by which its steps may differ; ``None``: of another kind
    than numbers and texts, so that it is not known."""
    attributes: dict[str, Any] = {"class": f"{type(form).__module__}.{type(form).__qualname__}"}
    for name, value in vars(form).items():
        if isinstance(value, (bool, int, float, str)) or value is None:
            attributes[name] = value
        elif name not in _KNOWN:
            return None
    parts = [numbers(part.form) for part in getattr(form, "parts", ())]
    if None in parts:
        return None
    attributes.pop("_scratch", None)
    return attributes | {"parts": parts}
