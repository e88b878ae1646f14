"""Branches of a trial: from one of its steps on, it is trained at k times its batch size.

A branch is the trial with a batch-size ramp of one change (``experiments.factors.ramp``), begun
from the trial's state at that step instead of from its first one. Branches of one k differ in the
seed of what is random after that step, the order of the data; the first has the trial's own, so
that with k = 1 it is the trial itself. Those of one seed see the same examples in the same order at
every k.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from experiments.batch_sizes import BatchSizes
from experiments.canonical import digest
from experiments.engines import Engine, make_engine
from experiments.errors import ExperimentError
from experiments.factors.ramp import Ramp
from experiments.plan import Measurement, Outcome, StopReason, Study, Trial
from experiments.seeds import derive
from experiments.training.clock import Clock
from experiments.training.evaluation.evaluator import Evaluator
from experiments.training.stopping import STATUS
from experiments.training.study_context import StudyContext
from results.counts import count

_PARTS = (0.25, 0.5, 0.75, 1.0)
"""Parts of the window after which branches are measured."""


@dataclass(frozen=True, kw_only=True)
class Branch:
    """The branches of one batch size from one step, which differ in their seeds."""

    study: Study
    """With the batch size at each step."""
    trials: tuple[Trial, ...]
    times: int
    step: int
    ends: tuple[int, ...]
    """The steps at which they are measured, counted from the trial's first one."""


def windows(steps: int, by: Sequence[int]) -> tuple[int, ...]:
    """Lengths after which branches are measured, in steps of the trial's batch size, ascending:
    parts of about ``steps`` that are whole numbers of steps at each of ``by`` times that size."""
    unit = math.lcm(*by)
    return tuple(sorted({max(1, round(part * steps / unit)) * unit for part in _PARTS}))


def branches(
    study: Study,
    trial: Trial,
    *,
    step: int,
    times: int,
    lengths: Sequence[int],
    seeds: int,
    rule: str,
    code: str | None = None,
) -> Branch:
    """Those of a trial from ``step`` on, at ``times`` its batch size.

    Args:
        study: the trial's, with its whole budget.
        lengths: from ``windows``.
        rule: of the learning rate: ``none``, ``sqrt`` or ``linear``.
        code: the version of the workload, on which ids depend.

    Raises:
        ExperimentError: the study has a ramp already, or a batch larger than its training set;
            the window ends after its budget, or there is no such step.
    """
    size, examples, budget = study.batch_size, study.train_examples, study.schedule_steps
    if study.ramp is not None:
        message = f"the batch size of trial {trial.id} grows already"
        raise ExperimentError(message, hint="branch from a trial of one batch size")
    if examples is None:
        message = "branches need training data that can be read in any order"
        raise ExperimentError(message, hint="these have no known end, or are read in sequence")
    if times * size > examples:
        raise ExperimentError(
            f"{times} times batch size {size} is over the training set "
            f"({count(examples, 'example')})",
            hint="leave it out",
        )
    if not 1 <= step <= budget - lengths[-1]:
        raise ExperimentError(
            f"from step {step:,} a window of {count(lengths[-1], 'step')} is not within the budget "
            f"of trial {trial.id}, {count(budget, 'step')}",
            hint=f"steps 1 to {budget - lengths[-1]:,}"
            if budget > lengths[-1]
            else "choose a shorter window",
        )
    rule = "none" if times == 1 else rule
    sizes = BatchSizes(
        batch_size=size,
        starts=(0, step),
        sizes=(size, times * size),
        schedule_steps=budget,
        learning_rate=rule,
    )
    technique = dict(study.technique)
    if times > 1:
        ramp = Ramp(changes=((step / budget, times),), learning_rate=rule)
        technique["ramp"] = str(ramp)
    about = {"branch_of": trial.id, "code": code, "step": step}
    about |= {"times": times, "rule": rule, "lengths": list(lengths)}
    ends = tuple(step + length // times for length in lengths)
    return Branch(
        study=replace(
            study,
            id=digest(about),
            experiment=f"{study.experiment}-branches",
            technique=technique,
            ramp=sizes,
            trials=seeds,
            budget_steps=ends[-1],
            recorded_budget_steps=study.technique_steps,
            evaluate="full",
            stop_at_target=False,
            keep=None,
        ),
        trials=tuple(_branched(trial, step, number, about) for number in range(seeds)),
        times=times,
        step=step,
        ends=ends,
    )


def _branched(trial: Trial, step: int, number: int, about: dict[str, Any]) -> Trial:
    return replace(
        trial,
        id=digest({**about, "seed": number}),
        index=number,
        seed=derive(trial.seed, "branch", step, number) if number else trial.seed,
        branch=(trial.seed, step) if number else None,
        role="branch",
        round=0,
        enlargement=0,
        other_searches={},
    )


def train(
    study: Study, trial: Trial, kind: str, wanted: Sequence[Branch], device: str
) -> Iterator[tuple[Branch, list[Measurement], list[Outcome]]]:
    """Train a trial once more, and from its states the branches, each as soon as it can be.

    Args:
        kind: of the engine that trained the trial.

    Raises:
        ExperimentError: the trial has diverged before one of the steps.
    """
    if not wanted:
        return
    engine = make_engine(kind, StudyContext.load(study, device), [trial])
    try:
        by_step = sorted(wanted, key=lambda branch: branch.step)
        for step, group in itertools.groupby(by_step, key=lambda branch: branch.step):
            _advance(engine, step)
            if not engine.finite()[0]:
                message = f"trial {trial.id} has diverged before step {step:,}"
                raise ExperimentError(message, hint="branch from an earlier step")
            (state,) = engine.copy([0])
            for branch in group:
                yield branch, *_train_from(state, branch, engine.kind, device)
    finally:
        engine.close()


def _advance(engine: Engine, step: int) -> None:
    # As the training loop does: see there.
    torch.set_flush_denormal(True)
    try:
        engine.advance(step - engine.steps[0])
    finally:
        torch.set_flush_denormal(False)


def _train_from(
    state: Any, branch: Branch, kind: str, device: str
) -> tuple[list[Measurement], list[Outcome]]:
    context = StudyContext.load(branch.study, device)
    engine, clock = make_engine(kind, context, branch.trials), Clock()
    measurements: list[Measurement] = []
    outcomes: list[Outcome] = []
    try:
        for row in range(len(branch.trials)):
            engine.restore(row, state)
        evaluate = Evaluator(engine)
        for end in branch.ends:
            with clock.timed("train", context.device):
                _advance(engine, end)
            finite = engine.finite()
            healthy = [row for row, well in enumerate(finite) if well]
            outcomes += [
                _outcome(engine, row, end, "diverged", clock)
                for row, well in enumerate(finite)
                if not well
            ]
            if len(healthy) < len(engine.trials):
                engine.keep(healthy)
            if not engine.trials:
                return measurements, outcomes
            with clock.timed("evaluation", context.device):
                rows = range(len(engine.trials))
                measured = evaluate(rows, [None for _ in rows])
            measurements += [
                Measurement(
                    trial=trial.id,
                    step=end,
                    examples=branch.study.batches.examples(end),
                    train_seconds=clock.train,
                    metrics=each.metrics,
                )
                for trial, each in zip(engine.trials, measured, strict=True)
            ]
        rows = range(len(engine.trials))
        outcomes += [_outcome(engine, row, branch.ends[-1], "budget", clock) for row in rows]
        return measurements, outcomes
    finally:
        engine.close()


def _outcome(engine: Engine, row: int, step: int, reason: StopReason, clock: Clock) -> Outcome:
    context = engine.context
    return Outcome(
        trial=engine.trials[row].id,
        status=STATUS[reason],
        stop_reason=reason,
        steps_run=step,
        examples_run=context.study.batches.examples(step),
        gradients_per_step=context.techniques.gradients_per_step,
        micro_batch=engine.micro_batch,
        skipped_steps=engine.skipped_steps(row),
        train_seconds=clock.train,
        evaluation_seconds=clock.evaluation,
        other_seconds=clock.other,
    )
