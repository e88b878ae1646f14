"""Steps of several stacks, each with its own batch size, as one captured step.

A small model's step on a GPU is as long as its kernels are many, whatever their size. The models of
several studies that differ in batch size alone are rows of one stack, so that a kernel is launched
once for all of them. Rows of a smaller batch size repeat their examples up to the largest one; the
weights of the loss are 1 / batch size for an example and 0 for a repetition, so that each model has
the gradient of its own batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy

import torch
from torch import Tensor

from experiments.engines.capture import captured_step
from experiments.engines.capture.batches import capturable, fetched, indexed, most_steps
from experiments.engines.capture.captured_step import Program, StepInputs, Trained
from experiments.engines.capture.stacked_program import (
    StackInTraining,
    numbers,
    settings_of,
    state_of,
)
from experiments.engines.stack import StackedStep, width_of
from experiments.engines.updates import FusedUpdate
from experiments.identity import optimizer_identity


def kind_of(of: StackInTraining) -> tuple[object, ...] | None:
    """Stacks with the same can take their steps jointly; ``None``: a stack that cannot."""
    context, update = of.stepper.context, of.update
    if not (
        capturable(context)
        and indexed(context)
        and isinstance(update, FusedUpdate)
        and update.rate_factor is None
        and of.size <= of.micro
    ):
        return None
    plain = numbers(update.form)
    if plain is None:
        return None
    optimizer = optimizer_identity(context.optimizer, context.study.workload.base)
    shapes = [x.shape[1:] for x in (*state_of(update, of.loss_sum), *settings_of(update))]
    text = json.dumps([optimizer, plain, shapes, context.precision.name])
    return (text, of.stepper.identity, context.splits["train"])


def advance_jointly(stacks: Sequence[StackInTraining], steps: int) -> bool:
    """Take so many steps of ``stacks``, which are of one kind (``kind_of``): whether they are
    taken; else all is as it was."""
    models = sum(of.stepper.stack.width for of in stacks)
    width, size = width_of(models), width_of(max(of.size for of in stacks))
    program = _program_of(stacks[0], width, size)
    if program is None:
        return False
    inputs = _inputs(stacks, steps, program.inputs.steps, width, size)
    return program.advance([_trained(of, size) for of in stacks], inputs)


def _trained(of: StackInTraining, size: int) -> Trained:
    update = of.update
    assert isinstance(update, FusedUpdate)
    weights = of.stepper.stack.weights.new_zeros(of.stepper.stack.width, size)
    weights[:, : of.size] = 1 / of.size
    return state_of(update, of.loss_sum), [*settings_of(update), weights]


def _program_of(of: StackInTraining, width: int, size: int) -> Program | None:
    """The program of ``width`` models and at most ``size`` examples each."""
    stepper, update = of.stepper, of.update
    context = stepper.context

    def make() -> Program:
        stack, own_update, losses = deepcopy((stepper.stack, update, of.loss_sum))
        assert isinstance(own_update, FusedUpdate)
        rows = torch.zeros(width, dtype=torch.int64, device=context.device)
        stack.keep(rows)
        own_update.keep(rows)
        losses = losses[rows]
        own = StackedStep(context, stepper.base, stack, stepper.draws, weighted=True)
        weights = stack.weights.new_zeros(width, size)
        start = torch.tensor(0, device=context.device)

        def take(inputs: StepInputs) -> None:
            random = (inputs["keys"], start) if stepper.draws else ()
            batch = fetched(context, inputs)
            losses.add_(own.add_gradient(batch, random, size, weights=weights, first=True))
            own_update.step(inputs["rates"])

        return Program(
            take,
            context.device,
            f"{context.workload.name} in a stack of {width} with several batch sizes",
            state=state_of(own_update, losses),
            settings=[*settings_of(own_update), weights],
            steps=most_steps(context, width * size),
        )

    made = captured_step.program(("joint", width, size, kind_of(of)), make)
    return made if made.step.refusal is None else None


def _inputs(
    stacks: Sequence[StackInTraining], steps: int, most: int, width: int, size: int
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """Those of all stacks, up to ``width`` models and ``size`` examples."""
    reads = [of.reads() for of in stacks]
    repeated = [torch.arange(size) % of.size for of in stacks]
    for first in range(0, steps, most):
        count = min(most, steps - first)
        each = [
            {"index": of.indices(first, count)[:, :, places], **read(first, count)}
            for of, places, read in zip(stacks, repeated, reads, strict=True)
        ]
        yield count, {name: _filled([x[name] for x in each], width) for name in each[0]}


def _filled(tensors: Sequence[Tensor], width: int) -> Tensor:
    """``(steps, models, …)`` each, behind each other, and zeros up to ``width`` models."""
    joined = torch.cat(list(tensors), dim=1)
    rest = joined.new_zeros(len(joined), width - joined.shape[1], *joined.shape[2:])
    return torch.cat([joined, rest], dim=1)
