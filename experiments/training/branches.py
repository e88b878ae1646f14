"""Branches of a trial: from one of its steps on, it is trained at k times its batch size.

A branch is the trial with a batch-size ramp of one change (``experiments.factors.ramp``), begun
from the trial's state at that step instead of from its first one. Branches of one k differ in the
seed of what is random after that step, the order of the data; the first has the trial's own, so
that with k = 1 it is the trial itself. Those of one seed see the same examples in the same order at
every k, but for the last short batch of an epoch, which is not the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.batch_sizes import BatchSizes
from experiments.canonical import digest
from experiments.engines import Engine, make_engine
from experiments.errors import ExperimentError
from experiments.factors.ramp import Ramp
from experiments.plan import Measurement, Outcome, Study, Trial
from experiments.seeds import derive
from experiments.training.clock import Clock
from experiments.training.loop import TrainingLoop
from experiments.training.stopping import StudyHits
from experiments.training.study_context import StudyContext
from results.counts import count

_PARTS = (0.25, 0.5, 0.75, 1.0)
"""Parts of the window after which branches are measured, as ``analysis.branches`` takes them."""


@dataclass(frozen=True, kw_only=True)
class Branch:
    """The branches of one batch size from one step, which differ in their seeds."""

    study: Study
    """With the batch size at each step."""
    trials: tuple[Trial, ...]
    times: int
    step: int
    ends: tuple[int, ...]
    """The steps at which they are measured, counted from the trial's first one; of a program the
    step at which they end."""

    def moved(self, step: int) -> Branch:
        """The same from another step, the one at which a program's checkpoint was."""
        ramp = self.study.ramp
        assert ramp is not None
        ends = tuple(end + step - self.step for end in self.ends)
        technique = _technique(self.study, step, self.times, ramp.learning_rate)
        ramp = replace(ramp, starts=(0, step))
        study = replace(self.study, ramp=ramp, technique=technique, budget_steps=ends[-1])
        return replace(self, study=study, step=step, ends=ends)


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
        lengths: from ``windows``; the length of the window, where the study is of a program.
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
    if examples is None and study.workload.program is None:
        message = "branches need training data that can be read in any order"
        raise ExperimentError(message, hint="these have no known end, or are read in sequence")
    if examples is not None and times * size > examples:
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
    about: dict[str, Any] = {"branch_of": trial.id, "code": code, "step": step}
    about |= {"times": times, "rule": rule, "lengths": list(lengths)}
    ends = tuple(step - (-length // times) for length in lengths)
    return Branch(
        study=replace(
            study,
            id=digest(about),
            experiment=f"{study.experiment}-branches",
            technique=_technique(study, step, times, rule),
            ramp=sizes,
            trials=seeds,
            budget_steps=ends[-1],
            recorded_budget_steps=study.technique_steps,
            evaluate="full",
            stop_at_target=False,
            keep=None,
        ),
        trials=tuple(
            replace(
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
            for number in range(seeds)
        ),
        times=times,
        step=step,
        ends=ends,
    )


def _technique(study: Study, step: int, times: int, rule: str) -> dict[str, Any]:
    if times == 1:
        return dict(study.technique)
    ramp = Ramp(changes=((step / study.schedule_steps, times),), learning_rate=rule)
    return {**study.technique, "ramp": str(ramp)}


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
    prefix = _Loop(engine, [study.budget_steps])
    try:
        by_step = sorted(wanted, key=lambda branch: branch.step)
        for step, group in itertools.groupby(by_step, key=lambda branch: branch.step):
            prefix.reach(step)
            if not engine.finite()[0]:
                message = f"trial {trial.id} has diverged before step {step:,}"
                raise ExperimentError(message, hint="branch from an earlier step")
            (state,) = engine.copy([0])
            for branch in group:
                yield branch, *_train_from(state, branch, engine.kind, device)
    finally:
        engine.close()


class _Loop(TrainingLoop):
    """The training loop with evaluations at given steps."""

    def __init__(self, engine: Engine, ends: Sequence[int]) -> None:
        self._ends = ends
        super().__init__(engine, StudyHits(()), Clock(), lambda _: None)

    def _next_evaluation(self, step: int) -> int:
        return next((end for end in self._ends if end > step), self._ends[-1])

    def reach(self, step: int) -> None:
        """Train to a step without an evaluation."""
        self._train(step - self.engine.steps[0])


def _train_from(
    state: Any, branch: Branch, kind: str, device: str
) -> tuple[list[Measurement], list[Outcome]]:
    engine = make_engine(kind, StudyContext.load(branch.study, device), branch.trials)
    try:
        for row in range(len(branch.trials)):
            engine.restore(row, state)
        events = [event for events in _Loop(engine, branch.ends).run() for event in events]
    finally:
        engine.close()
    # Whether the trial had reached its target before is not known here.
    outcomes = [
        replace(event, steps_to_target=None, last_miss=None)
        for event in events
        if isinstance(event, Outcome)
    ]
    return [event for event in events if isinstance(event, Measurement)], outcomes
