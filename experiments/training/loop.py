"""The training loop: it takes steps, evaluates, and records measurements and steps to target.

How a trial is trained is read in four files, in this order:

1. ``experiments/engines/step.py``: a step, and the techniques in it;
2. ``experiments/engines/single_model.py``: what a step is made of for a model by itself;
3. ``experiments/training/stopping.py``: the progress of a trial, and when it stops;
4. ``experiments/training/loop.py``: this file.

In a stack of models ``experiments/engines/stacked.py``, ``stack.py`` and ``updates.py`` are in the
place of the second. What all use, workload, data and a freshly initialized model, is in
``experiments/training/study_context.py``. Everything else is outside of it
(``experiments/training/pack_training.py``): paused trials, trials that join while others train,
snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from math import nan

import torch

from experiments.engines.base import Engine
from experiments.plan import Measurement, Outcome, StopReason, Trial
from experiments.training.clock import Clock, next_chunk
from experiments.training.evaluation.evaluator import Evaluator, Measured
from experiments.training.evaluation_grid import next_evaluation
from experiments.training.stopping import STATUS, Evaluation, StudyHits, TrialProgress, stop_reasons
from results.targets.target import Target

Event = Measurement | Outcome


class TrainingLoop:
    """Trains the trials of an engine until each has a reason to stop; others may join meanwhile."""

    def __init__(
        self,
        engine: Engine,
        hits: StudyHits,
        clock: Clock,
        on_evaluated: Callable[[Sequence[Evaluation]], None],
    ) -> None:
        """``on_evaluated`` is called after the stopping rules, while trials that have ended are
        still in the engine."""
        self.engine, self.context = engine, engine.context
        self.hits, self.clock, self.on_evaluated = hits, clock, on_evaluated
        self.evaluate = Evaluator(engine)
        self.study = self.context.study
        self.progress: dict[str, TrialProgress] = {}
        self.step = 0
        """The most steps that a trial in training has taken."""
        self.steps = 0
        """Steps that this loop has taken, of all its trials together."""
        self._chunk = 1
        """Steps to train before the next heartbeat."""
        self.begin(self.engine.trials)

    def begin(self, trials: Sequence[Trial]) -> None:
        """Let trials of the engine that have taken no step begin."""
        self.progress |= {t.id: TrialProgress(next=self._next_evaluation(0)) for t in trials}

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[list[Event]]:
        """Train; one list for each evaluation, an empty one as a heartbeat between distant ones.

        Ends when no trial is left, or, without outcomes for those that are, once ``should_stop()``
        (rank 0's, which all ranks follow at every heartbeat) is true. What the user's own code
        raises passes through.
        """
        while self.engine.trials:
            stop, self._chunk = self.context.layout.ranks.agree((should_stop(), self._chunk))
            if stop:
                return
            rows = zip(self.engine.trials, self.engine.steps, strict=True)
            steps = min(self._chunk, *(self.progress[t.id].next - step for t, step in rows))
            self._chunk = next_chunk(steps, self._train(steps))
            yield self._evaluate()

    def _next_evaluation(self, step: int) -> int:
        ratio = self.study.evaluation_ratio
        assert ratio is not None  # only a program has none
        return next_evaluation(step, ratio, self.study.budget_steps)

    def _train(self, steps: int) -> float:
        before = self.clock.train
        # An optimizer's averages of a gradient that has become zero decay into denormal numbers,
        # on which a processor is ten times slower; below 1e-38 they mean nothing.
        torch.set_flush_denormal(True)
        try:
            with self.clock.timed("train", self.context.device):
                self.engine.advance(steps)
        finally:
            torch.set_flush_denormal(False)
        self.step = max(self.engine.steps)
        self.steps += steps * len(self.engine.trials)
        return self.clock.train - before

    def _evaluate(self) -> list[Event]:
        """Evaluate the trials that are due, and stop those that end."""
        evaluations = self._measure()
        measurements = [self._record(e) for e in evaluations if e.finite]
        for e in evaluations:
            reason = next(stop_reasons(self.study, self.hits, e), None)
            if reason is not None:
                e.outcome = self._outcome(e, reason)
        self.on_evaluated(evaluations)
        ended = {e.row: e.outcome for e in evaluations if e.outcome is not None}
        if ended:
            self.engine.keep([i for i in range(len(self.engine.trials)) if i not in ended])
            for outcome in ended.values():
                del self.progress[outcome.trial]
        return [*measurements, *ended.values()]

    def _measure(self) -> list[Evaluation]:
        trials, steps, target = list(self.engine.trials), self.engine.steps, self.study.targets[-1]
        progress = [self.progress[t.id] for t in trials]
        rows = [i for i, step in enumerate(steps) if progress[i].next == step]
        if not rows:
            return []
        measured = {i: Measured(metrics={}) for i in rows}
        with self.clock.timed("evaluation", self.context.device):
            finite = self.engine.finite()
            if healthy := [i for i in rows if finite[i]]:
                targets = [self._undecided(progress[i], steps[i]) for i in healthy]
                measured |= zip(healthy, self.evaluate(healthy, targets), strict=True)
        return [
            Evaluation(
                row=i,
                trial=trials[i],
                step=steps[i],
                progress=progress[i],
                finite=finite[i],
                metrics=measured[i].metrics,
                sample=measured[i].sample,
                hit=target.hit(measured[i].metrics.get(target.metric, nan)),
                train_seconds=self.clock.train,
            )
            for i in rows
        ]

    def _undecided(self, progress: TrialProgress, step: int) -> Target | None:
        """The easiest target that a trial has not reached; ``None`` at the end of its budget, where
        the whole split is read: final metrics are of all trials alike."""
        ends = step == self.study.budget_steps
        return None if ends else self.study.targets[progress.targets_reached]

    def _record(self, evaluation: Evaluation) -> Measurement:
        progress, step = evaluation.progress, evaluation.step
        self.hits.add_first(evaluation)
        progress.last, progress.next = step, self._next_evaluation(step)
        sample = evaluation.sample
        for target in self.study.targets[progress.targets_reached : -1]:
            progress.targets_reached += target.hit(evaluation.metrics.get(target.metric, nan))
        return Measurement(
            trial=evaluation.trial.id,
            step=step,
            examples=self.study.batches.examples(step),
            train_seconds=evaluation.train_seconds,
            metrics=evaluation.metrics,
            **({} if sample is None else asdict(sample)),
        )

    def _outcome(self, evaluation: Evaluation, reason: StopReason) -> Outcome:
        steps_to_target, last_miss = evaluation.progress.hit or (None, None)
        return Outcome(
            trial=evaluation.trial.id,
            status=STATUS[reason],
            stop_reason=reason,
            steps_run=evaluation.step,
            examples_run=self.study.batches.examples(evaluation.step),
            steps_to_target=steps_to_target,
            last_miss=last_miss,
            gradients_per_step=self.context.techniques.gradients_per_step,
            micro_batch=self.engine.micro_batch,
            skipped_steps=self.engine.skipped_steps(evaluation.row),
            train_seconds=self.clock.train,
            evaluation_seconds=self.clock.evaluation,
            other_seconds=self.clock.other,
        )
