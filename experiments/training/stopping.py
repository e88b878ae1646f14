"""When a trial stops: rules that are asked in a fixed order after each evaluation.

1. *diverged*: a loss or a weight was not finite at some step;
2. *target*: the metric is strictly better than the target for the first time;
3. *dominated*: the trial can no longer be among the study's ``keep`` smallest steps to target;
4. *budget*: all steps are taken.

The first rule that gives a reason decides.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from experiments.plan import Outcome, Status, StopReason, Study, Trial
from experiments.scheduling.rounds import cutoff
from experiments.training.evaluation.misses import Sample

STATUS: Mapping[StopReason, Status] = {
    "diverged": "INFEASIBLE",
    "target": "COMPLETE",
    "dominated": "INCOMPLETE",
    "budget": "COMPLETE",
}
_MINIMA = ("search", "extension")
"""Roles of the trials that a study's smallest steps to target are taken over."""


@dataclass(kw_only=True)
class TrialProgress:
    """The progress of a trial on its evaluation grid."""

    next: int
    """The step of its next evaluation."""
    last: int = 0
    """The step of its last evaluation."""
    hit: tuple[int, int] | None = None
    """Steps to target, and the last miss before."""
    targets_reached: int = 0
    """How many of the study's easier targets it has reached."""


@dataclass(kw_only=True)
class Evaluation:
    """The result of one evaluation of a trial."""

    row: int
    """The trial's position in the engine."""
    trial: Trial
    step: int
    progress: TrialProgress
    finite: bool
    """Whether losses and weights have been finite at every step so far."""
    metrics: Mapping[str, float]
    hit: bool
    """Whether the metric is strictly better than the target."""
    sample: Sample | None = None
    """Set where the metrics are of a part of the split, on which the target was missed."""
    train_seconds: float = 0.0
    """The pack's, when it was evaluated."""
    first_hit: bool = False
    outcome: Outcome | None = None
    """How the trial ended, if it did."""


class StudyHits:
    """Steps to target of a study's trials that this pack knows."""

    def __init__(self, of_others: Sequence[int]) -> None:
        """``of_others``: steps to target of trials that other packs have finished."""
        self.steps = sorted(of_others)
        self.of_pack: list[int] = []

    def add(self, steps: int) -> None:
        """Take in that another pack's trial has reached the target."""
        insort(self.steps, steps)

    def restore(self, of_pack: Sequence[int]) -> None:
        """Take in what the pack's snapshot has."""
        self.of_pack = list(of_pack)
        self.steps = sorted([*self.steps, *of_pack])

    def add_first(self, evaluation: Evaluation) -> None:
        """Take in an evaluation of a trial of this pack, which may be its first hit."""
        progress, step = evaluation.progress, evaluation.step
        if not evaluation.hit or progress.hit is not None:
            return
        progress.hit, evaluation.first_hit = (step, progress.last), True
        if evaluation.trial.role in _MINIMA:
            self.of_pack.append(step)
            self.add(step)


def stop_reasons(study: Study, hits: StudyHits, evaluation: Evaluation) -> Iterator[StopReason]:
    """Why a trial stops at an evaluation, in the order above; none: it goes on.

    ``hits`` has those of all trials that were evaluated at the same time.
    """
    if not evaluation.finite:
        yield "diverged"
    if study.stop_at_target and evaluation.first_hit:
        yield "target"
    dominated_at = cutoff(hits.steps, study.keep) if study.stop_at_target else None
    if dominated_at is not None and evaluation.step >= dominated_at:
        yield "dominated"
    if evaluation.step == study.budget_steps:
        yield "budget"
