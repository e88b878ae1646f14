"""The steps of a stack of models as a captured step: its examples are gathered by their indices,
and all else that changes from step to step is read from tables on the device."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from experiments.engines.batches import Row, gathers, indices_of
from experiments.engines.capture import captured_step
from experiments.engines.capture.captured_step import Program, StepInputs
from experiments.engines.randomness import key_of
from experiments.engines.stack import StackedStep
from experiments.engines.updates import FusedUpdate, Update, learning_rates
from experiments.identity import optimizer_identity
from experiments.optimizers.stacked_update import StackedUpdate
from experiments.training.study_context import StudyContext

_KNOWN = ("parameters", "state", "values", "momenta", "adamw", "batches", "_scratch")
"""Attributes of an update that are tensors, or the same for one shape and one optimizer."""
_IN_STEPS = (
    *("before_step", "select", "observe", "perturbed", "gradient", "after_step"),
    *("communication", "optimizer"),
)
"""Hooks that are called in a step, besides those of the forward pass; they may do anything."""
_TABLE_BYTES = 2**22


def capturable(context: StudyContext) -> bool:
    """Whether steps of a study may be captured: on this kind of device, by one worker, and without
    what the host decides in a step."""
    techniques = context.techniques
    return (
        context.device.type in captured_step.RECORDERS
        and context.layout.ranks.size == 1
        and context.layout.stacks
        and gathers(context)
        and not context.precision.scales
        and not techniques.define(*_IN_STEPS)
    )


def advance_captured(
    stepper: StackedStep, update: Update, rows: Sequence[Row], seen: Sequence[Row], steps: int
) -> bool:
    """Take so many steps as captured ones, if they can be: whether they are taken.

    ``seen``: the rows whose examples each of ``rows`` sees; the first one's step tells the batch
    size.
    """
    if not capturable(stepper.context) or not isinstance(update, FusedUpdate):
        return False
    program = _program_of(stepper, update, seen[0].step)
    if program is None:
        return False
    inputs = _inputs(stepper, rows, seen, steps, program.inputs.steps)
    return program.advance(state_of(update), settings_of(update), inputs)


def _program_of(stepper: StackedStep, update: FusedUpdate, first: int) -> Program | None:
    """The program for steps of the batch size at step ``first``, which has a stack of its own;
    ``None``: they cannot be captured."""
    context, micro = stepper.context, stepper.micro
    plain = numbers(update.form)
    if plain is None:
        return None
    size, part = context.study.batches.size(first), context.part(first)
    optimizer = optimizer_identity(context.optimizer, context.study.workload.base)
    shapes = [x.shape for x in (*state_of(update), *settings_of(update))]
    text = json.dumps([optimizer, plain, shapes, size, part.stop, micro, context.precision.name])
    key = (text, stepper.identity, context.splits["train"])

    def make() -> Program:
        stack, own_update = deepcopy((stepper.stack, update))
        own = StackedStep(context, stepper.base, stack, stepper.draws, micro)

        def take(inputs: StepInputs) -> None:
            index = inputs["index"]
            batch = context.train.fetch(index.reshape(-1), training=True)
            of_models = tuple(x.view(*index.shape, *x.shape[1:]) for x in batch)
            keys = inputs["keys"] if stepper.draws else None
            own.take_gradient(of_models, size, keys, part.start)
            own_update.step(inputs["rates"])

        indices = stack.width * (part.stop - part.start)
        return Program(
            take,
            context.device,
            f"{context.workload.name} in a stack of {stack.width}",
            state=state_of(own_update),
            settings=settings_of(own_update),
            steps=max(1, min(256, _TABLE_BYTES // (8 * max(indices, 1)))),
        )

    made = captured_step.program(key, make)
    return made if made.refusal is None else None


def _inputs(
    stepper: StackedStep, rows: Sequence[Row], seen: Sequence[Row], steps: int, most: int
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """What the next ``steps`` read, at most ``most`` at once, with their number."""
    context, part = stepper.context, stepper.context.part(seen[0].step)
    rates_at = learning_rates(context, [row.trial for row in rows])
    for first in range(0, steps, most):
        count = min(most, steps - first)
        taken = [[row.step + first + i for row in rows] for i in range(count)]
        inputs = {
            "index": indices_of(seen, part, first, count),
            "rates": torch.stack([rates_at(of_rows) for of_rows in taken]),
        }
        if stepper.draws:
            seeds = [row.trial.seed for row in rows]
            keys = [[key_of(*each) for each in zip(seeds, t, strict=True)] for t in taken]
            inputs["keys"] = torch.tensor(keys)
        yield count, inputs


def state_of(update: FusedUpdate) -> list[Tensor]:
    """What steps change."""
    return [update.stack.weights, update.stack.losses, *update.form.state.values()]


def settings_of(update: FusedUpdate) -> list[Tensor]:
    """What steps read, of these trials."""
    factor = [] if update.rate_factor is None else [update.rate_factor]
    return [*factor, *(v for f in _forms(update.form) for v in f.values.values())]


def _forms(form: StackedUpdate) -> list[StackedUpdate]:
    """An update, and the one of the other parameters that Muon has."""
    adamw = getattr(form, "adamw", None)
    return [form, adamw[0]] if adamw else [form]


def numbers(form: StackedUpdate) -> Mapping[str, Any] | None:
    """What an update has besides tensors, by which its steps may differ; ``None``: of another kind
    than numbers and texts, so that it is not known."""
    attributes: dict[str, Any] = {"class": f"{type(form).__module__}.{type(form).__qualname__}"}
    for name, value in vars(form).items():
        if isinstance(value, (bool, int, float, str)) or value is None:
            attributes[name] = value
        elif name not in _KNOWN:
            return None
    parts = [numbers(part) for part in _forms(form)[1:]]
    if None in parts:
        return None
    attributes.pop("_scratch", None)
    return attributes | {"parts": parts}
