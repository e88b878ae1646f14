"""The steps of one model as a captured step, shared by all trials whose models have its shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import workloads
from experiments.engines.capture import captured_step
from experiments.engines.capture.batches import capturable, fetched, most_steps, step_inputs
from experiments.engines.capture.captured_step import Program, StepInputs
from experiments.engines.capture.flat_optimizer import FlatOptimizer
from experiments.engines.capture.stacked_program import inputs_of, numbers, settings_of, state_of
from experiments.engines.module_run import ModuleRun
from experiments.identity import optimizer_identity, technique_identity
from experiments.optimizers.groups import Rates
from workloads import Batch
from workloads.ghost import finish_step, has_batch_norm


def flatten(run: ModuleRun) -> ModuleRun:
    """Give a run that takes no step yet an optimizer that can be captured, where it can."""
    context = run.context
    if capturable(context) and not _has_own_tensors(run):
        optimizer = FlatOptimizer.of(context, run.trial, run.model)
        if optimizer is not None:
            run.optimizer = optimizer
            run.rates = Rates(optimizer, context.optimizer.name)
    return run


def advance(run: ModuleRun, steps: int, another: Callable[[], ModuleRun]) -> None:
    """Take so many steps, from a recording if they can be recorded.

    ``another``: makes a run of the same trial, for the recording to work on.
    """
    optimizer = run.optimizer
    pieces = run.context.study.batches.pieces(run.step, steps)
    for piece in pieces:
        program = None
        if isinstance(optimizer, FlatOptimizer) and not run.draws.unsupported:
            program = _program_of(run, optimizer, piece.start, another)
        if (
            program is not None
            and isinstance(optimizer, FlatOptimizer)
            and program.advance(
                [(_state(run, optimizer), settings_of(optimizer.update))],
                _inputs(run, piece, program),
            )
        ):
            run.step = piece.stop
        else:
            run.advance(len(piece))


def _program_of(
    run: ModuleRun, optimizer: FlatOptimizer, step: int, another: Callable[[], ModuleRun]
) -> Program | None:
    context, study = run.context, run.context.study
    plain = numbers(optimizer.update.form)
    if plain is None:
        return None
    tensors = [*run.model.parameters(), *_state(run, optimizer), *settings_of(optimizer.update)]
    text = json.dumps(
        [
            workloads.identity(run.workload),
            technique_identity(study.technique, study.workload.base),
            run.techniques.tuned,
            study.technique_steps if run.techniques.uses_budget else None,
            optimizer_identity(context.optimizer, study.workload.base),
            plain,
            [(tuple(x.shape), x.stride(), str(x.dtype)) for x in tensors],
            (study.batches.size(step), repr(study.ramp), run.gradient.passes.micro_batch),
            (context.precision.name, str(context.device)),
        ],
        sort_keys=True,
    )
    key = ("module", text, context.techniques.prepared, context.splits["train"])

    def make() -> Program:
        own = another()
        own_optimizer = own.optimizer
        assert isinstance(own_optimizer, FlatOptimizer)
        normed = has_batch_norm(own.model)

        def take(inputs: StepInputs) -> None:
            if own.draws:
                own.gradient.passes.key = inputs["keys"][0]
            with torch.enable_grad():
                own.gradient.take(tuple(x[0] for x in fetched(context, inputs)), step)
            own_optimizer.apply(inputs["rates"])
            own_optimizer.zero_grad()  # their memory is that of all recordings
            if normed:
                finish_step(own.model, context.layout.all_reduce)

        return Program(
            take,
            context.device,
            context.workload.name,
            state=_state(own, own_optimizer),
            settings=settings_of(own_optimizer.update),
            steps=most_steps(context, study.batches.size(step)),
            outside=lambda: _numbers_of_modules(own.model),
        )

    made = captured_step.program(key, make)
    return made if made.step.refusal is None else None


def _state(run: ModuleRun, optimizer: FlatOptimizer) -> list[Tensor]:
    return [*state_of(optimizer.update, run.loss_sum), *run.model.buffers()]


def _inputs(
    run: ModuleRun, steps: range, program: Program
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    context, trial = run.context, run.trial
    part, change = context.part(steps.start), run.techniques.augmentation(trial.seed)

    def batches() -> Iterator[tuple[int, Batch]]:
        for step, batch in context.train.batches(run.order, steps, part, trial.seed, change):
            yield step, tuple(x.unsqueeze(0) for x in batch)

    def indices(first: int, count: int) -> Tensor:
        drawn: Any = run.order
        return drawn.batches(steps.start + first, count)[:, part].unsqueeze(1)

    return step_inputs(
        context,
        len(steps),
        program.inputs.steps,
        indices,
        batches,
        inputs_of(context, [trial], [steps.start], random=bool(run.draws)),
    )


def _has_own_tensors(run: ModuleRun) -> bool:
    """Whether a trial's model or techniques have what a recording for another trial would not see:
    tensors that are neither parameters nor buffers, or the trial's seed."""
    values = [value for module in run.model.modules() for value in vars(module).values()]
    seeded = any(part.uses_seed and not part.defines("augment") for part in run.techniques)
    return seeded or any(isinstance(value, Tensor) for value in values)


def _numbers_of_modules(model: nn.Module) -> list[dict[str, Any]]:
    """Attributes of modules that are numbers or texts, which a recording keeps as they were."""
    plain = (bool, int, float, str)
    return [
        {name: value for name, value in vars(module).items() if isinstance(value, plain)}
        for module in model.modules()
    ]
