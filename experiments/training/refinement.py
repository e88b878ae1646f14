"""Bracket refinement: a trial that has hit its target is evaluated again within its bracket.

Where the study refines, a trial whose hit is the study's earliest so far, or ties with it, is taken
back to its last miss and evaluated on a finer grid, up to its first finer hit. It trains on in its
pack as any other, only from an earlier step, so that it goes into snapshots and stops between steps
like the rest. Then a trial that stops at its target ends as it did at its hit; any other one goes
on from there. Measurements and brackets are what they are without refinement.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from experiments.encoding import MalformedError, from_fields, to_fields
from experiments.engines.base import Engine, gather
from experiments.plan import Outcome
from experiments.training.evaluation_grid import bracket, next_evaluation
from experiments.training.loop import Observer
from experiments.training.stopping import Evaluation, StudyHits, TrialProgress


@dataclass(frozen=True, kw_only=True)
class BracketRefinement:
    """A trial that has hit its target and is back in the bracket of its hit."""

    steps: tuple[int, ...]
    """Finer evaluations that are left, all of them before the hit."""
    hit: int
    """The step of the hit on the evaluation grid."""
    miss: int
    """The last finer evaluation that missed."""
    outcome: Outcome | None
    """The outcome at its hit, if the trial stops there."""
    state: Any
    """The engine's copy of it at the hit, if it continues from there."""


@dataclass(frozen=True, kw_only=True)
class RefinementState:
    """The state of refinement for the trials of a pack, by id."""

    misses: dict[str, Any]
    """The engine's copy of a trial at its last miss, if its bracket may be refined."""
    brackets: dict[str, BracketRefinement]
    refined: dict[str, tuple[int, int]]
    """Steps to target and last miss on the finer grid."""

    def to_plain(self) -> dict[str, Any]:
        """The value for ``encode``, on the CPU."""
        plain = to_fields(self)
        plain["brackets"] = {
            trial: {**to_fields(b), "outcome": b.outcome and to_fields(b.outcome)}
            for trial, b in self.brackets.items()
        }
        return dict(gather(plain, torch.device("cpu")))

    @classmethod
    def from_plain(cls, content: Any, trials: Collection[str]) -> RefinementState:
        """
        Raises:
            MalformedError: ``to_plain`` did not write it, or of other trials.
        """
        brackets = content.get("brackets") if isinstance(content, dict) else None
        if not isinstance(brackets, dict):
            raise MalformedError("not the state of a refinement")
        state = from_fields(
            cls, {**content, "brackets": {t: _read(b) for t, b in brackets.items()}}
        )
        if not {*state.misses, *state.brackets, *state.refined} <= set(trials):
            raise MalformedError("refinement of trials that are not in the snapshot")
        return state


def _read(content: Any) -> BracketRefinement:
    if isinstance(content, dict) and isinstance(content.get("outcome"), dict):
        content = {**content, "outcome": from_fields(Outcome, content["outcome"])}
    return from_fields(BracketRefinement, content)


class Refinement(Observer):
    """The refinement of a pack; without ``Study.refine`` it does nothing."""

    def __init__(self, engine: Engine, hits: StudyHits) -> None:
        self._engine, self._hits = engine, hits
        self._study = self._engine.context.study
        self.state = RefinementState(misses={}, brackets={}, refined={})

    def takes(self, trial: str) -> bool:
        return trial in self.state.brackets

    def evaluated(self, evaluations: Sequence[Evaluation]) -> None:
        if self._study.refine is None:
            return
        misses: dict[int, TrialProgress] = {}
        for e in evaluations:
            if e.trial.id in self.state.brackets:
                self._continue(e)
            elif e.first_hit and e.step <= self._hits.least:
                self._begin(e)
            elif e.outcome is None:
                misses[e.row] = e.progress
            if e.outcome is not None:
                self.state.misses.pop(e.trial.id, None)
                steps, miss = self.state.refined.pop(e.trial.id, (None, None))
                e.outcome = replace(e.outcome, refined_steps=steps, refined_last_miss=miss)
        self.copy_misses(misses)

    def forget(self, trial: str) -> None:
        """Drop what is held of a trial that is not trained on."""
        for held in (self.state.misses, self.state.brackets, self.state.refined):
            held.pop(trial, None)

    def copy_misses(self, progress: dict[int, TrialProgress]) -> None:
        """Copy the engine's state of trials that have just missed, if their bracket may matter.

        Args:
            progress: of the rows of the engine that train on.
        """
        if self._study.refine is None:
            return
        rows = []
        for row, at in progress.items():
            self.state.misses.pop(self._engine.trials[row].id, None)
            open_ = at.hit is None and at.next <= self._hits.least
            if open_ and self._finer_steps(at.last, at.next):
                rows.append(row)
        for row, state in zip(rows, self._engine.copy(rows) if rows else (), strict=True):
            self.state.misses[self._engine.trials[row].id] = state

    def _begin(self, e: Evaluation) -> None:
        """Take a trial back to its last miss, unless its bracket holds no step between."""
        assert e.progress.hit is not None
        hit, miss = e.progress.hit
        steps, state = self._finer_steps(miss, hit), None
        if not steps:
            self.state.refined[e.trial.id] = e.progress.hit
            self.state.misses.pop(e.trial.id, None)
            return
        if e.outcome is None:
            state = self._engine.copy([e.row])[0]
        self.state.brackets[e.trial.id] = BracketRefinement(
            steps=steps, hit=hit, miss=miss, outcome=e.outcome, state=state
        )
        e.outcome, e.progress.next = None, steps[0]
        self._engine.restore(e.row, self.state.misses.pop(e.trial.id))

    def _continue(self, e: Evaluation) -> None:
        """Take in a finer evaluation; at the last one the trial ends, or goes on from its hit."""
        at = self.state.brackets[e.trial.id]
        step, left = at.steps[0], at.steps[1:]
        if not e.hit and left:
            self.state.brackets[e.trial.id] = replace(at, steps=left, miss=step)
            e.progress.next = left[0]
            return
        del self.state.brackets[e.trial.id]
        self.state.refined[e.trial.id] = (step, at.miss) if e.hit else (at.hit, step)
        e.outcome = at.outcome
        if e.outcome is None:
            self._engine.restore(e.row, at.state)
            ratio, budget = self._study.evaluation_ratio, self._study.budget_steps
            e.progress.next = next_evaluation(at.hit, ratio, budget)

    def _finer_steps(self, miss: int, hit: int) -> tuple[int, ...]:
        assert self._study.refine is not None
        return bracket(miss, hit, self._study.refine)
