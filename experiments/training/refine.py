"""Bracket refinement: a trial that has hit its target walks its bracket again with finer looks.

A walking trial trains on in its pack as any other, only from an earlier step; so it goes into
snapshots and stops between steps like the rest. When it is found, its place is given back: a trial
that stops at its target ends as it did there, any other one goes on from where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from experiments.engines import Engine
from experiments.plan import Outcome, Study
from experiments.training.evaluation_grid import bracket, next_evaluation
from experiments.training.trial_progress import BracketRefinement, TrialProgress


class Refinement:
    """The walks of one pack; without ``Study.refine`` nothing is held and nobody walks."""

    def __init__(self, study: Study) -> None:
        self._study = study

    def hold(self, engine: Engine, courses: Mapping[int, TrialProgress], least: int) -> None:
        """Keep what the engine has of trials that have just missed, if their bracket may matter.

        Args:
            courses: those of the rows of ``engine`` that have looked and train on.
            least: no later hit can be among the study's smallest.
        """
        if self._study.refine is None:
            return
        rows = []
        for row, course in courses.items():
            course.held = None
            open_ = course.hit is None and course.next <= least
            if open_ and self._steps(course.last, course.next):
                rows.append(row)
        for row, held in zip(rows, engine.copy(rows) if rows else (), strict=True):
            courses[row].held = held

    def settle(self, course: TrialProgress, least: int) -> bool:
        """Whether a trial that has just hit is to walk; where there is nothing between, it is done.

        ``least`` counts the hits of this look too.
        """
        if self._study.refine is None or course.hit is None or course.hit[0] > least:
            return False
        if self._steps(course.hit[1], course.hit[0]):
            return True
        course.refined = course.hit
        return False

    def begin(self, engine: Engine, row: int, course: TrialProgress, ended: Outcome | None) -> None:
        """Take a trial back to its last miss. ``ended``: how it stops at its hit, if it does."""
        assert course.hit is not None
        hit, miss = course.hit
        steps = self._steps(miss, hit)
        after = None if ended else engine.copy([row])[0]
        course.walk = BracketRefinement(steps=steps, hit=hit, miss=miss, ended=ended, after=after)
        course.next = steps[0]
        engine.restore(row, course.held)
        course.held = None

    def look(self, engine: Engine, row: int, course: TrialProgress, hit: bool) -> Outcome | None:
        """Take in a finer look; the outcome of a trial whose walk and life are over."""
        walk = course.walk
        assert walk is not None
        step, left = walk.steps[0], walk.steps[1:]
        if not hit and left:
            course.walk, course.next = replace(walk, steps=left, miss=step), left[0]
            return None
        found = (step, walk.miss) if hit else (walk.hit, step)
        course.refined, course.walk = found, None
        if walk.ended is not None:
            return replace(walk.ended, refined_steps=found[0], refined_last_miss=found[1])
        engine.restore(row, walk.after)
        study = self._study
        course.next = next_evaluation(walk.hit, study.evaluation_ratio, study.budget_steps)
        return None

    def _steps(self, miss: int, hit: int) -> tuple[int, ...]:
        assert self._study.refine is not None
        return bracket(miss, hit, self._study.refine)
