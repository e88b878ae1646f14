"""When a trial stops: rules of one kind, applied in a fixed order after each evaluation.

1. *diverged*: a loss or a weight was not finite at some step;
2. *target*: the metric is strictly better than the target for the first time;
3. *dominated*: the trial can no longer be among the study's ``keep`` smallest steps to target;
4. *budget*: all steps are taken.

The first rule that gives a reason decides.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from experiments.plan import Outcome, Status, StopReason, Study, Trial
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

    def add_of_pack(self, trial: Trial, steps: int) -> None:
        """Take in that a trial of this pack has reached the target; other roles are not counted."""
        if trial.role in _MINIMA:
            self.of_pack.append(steps)
            self.add(steps)


class StoppingRule(Protocol):
    """One rule. The hits of all trials evaluated at the same time are known by then."""

    def reason(self, evaluation: Evaluation) -> StopReason | None:
        """Why the trial stops here; ``None`` if it continues."""


@dataclass(frozen=True)
class Diverged:
    def reason(self, evaluation: Evaluation) -> StopReason | None:
        return None if evaluation.finite else "diverged"


@dataclass(frozen=True)
class AtTarget:
    study: Study

    def reason(self, evaluation: Evaluation) -> StopReason | None:
        return "target" if self.study.stop_at_target and evaluation.first_hit else None


@dataclass(frozen=True)
class Dominated:
    """The trial has run as many steps as the study's ``keep``-th smallest steps to target: it can
    neither be among the ``keep`` smallest nor tie with them."""

    study: Study
    hits: StudyHits

    def reason(self, evaluation: Evaluation) -> StopReason | None:
        keep, steps = self.study.keep, self.hits.steps
        if keep is None or not self.study.stop_at_target or len(steps) < keep:
            return None
        return "dominated" if evaluation.step >= steps[keep - 1] else None


@dataclass(frozen=True)
class BudgetSpent:
    study: Study

    def reason(self, evaluation: Evaluation) -> StopReason | None:
        return "budget" if evaluation.step == self.study.budget_steps else None


def stopping_rules(study: Study, hits: StudyHits) -> tuple[StoppingRule, ...]:
    """The rules of a study, in their order."""
    return Diverged(), AtTarget(study), Dominated(study, hits), BudgetSpent(study)
