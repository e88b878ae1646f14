"""A pack in training: look by look, what was measured and which trials have ended.

This is the whole life of a trial. Two clocks are kept apart, training and evaluation, and the
device is waited for before either is read; what is left is the pack's other time.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from experiments.encoding import MalformedError, UnencodableError
from experiments.engines import Engine, check_contract, make_engine
from experiments.engines.base import gather
from experiments.plan import Measurement, Outcome, Pack, Status, StopReason, Trial
from experiments.training import paused_trials
from experiments.training.evaluation_grid import next_evaluation
from experiments.training.ranks import SOLO, Ranks
from experiments.training.refine import Refinement
from experiments.training.snapshot import Snapshot
from experiments.training.study_context import StudyContext
from experiments.training.trial_progress import TrialProgress

_HEARTBEAT_SECONDS = 2.0
_STATUS: dict[StopReason, Status] = {
    "target": "COMPLETE",
    "budget": "COMPLETE",
    "diverged": "INFEASIBLE",
    "dominated": "INCOMPLETE",
}
_MINIMA = ("search", "extension")
"""Roles of the trials that a study's smallest steps to target are taken over."""

Event = Measurement | Outcome


class Training:
    """Trains the trials of a pack until each has a reason to stop; others may join meanwhile.

    A trial stops at its target (unless the study says not to), when it diverged, at its budget,
    or *dominated*: it has run as many steps as the study's ``keep``-th smallest steps to target
    and can no longer be among the ``keep`` smallest, nor tie with them.

    Where the study refines, a trial whose hit is the study's earliest so far, or ties with it, is
    taken back to its last miss and walks the bracket again with finer looks, up to its first finer
    hit. Its measurements and its bracket are what they are without.
    """

    def __init__(
        self,
        pack: Pack,
        *,
        device: str = "cpu",
        group: Ranks = SOLO,
        snapshot: bytes | None = None,
        keep_weights: bool = False,
    ) -> None:
        """Load the workload, make the models; continue from ``snapshot`` if there is one.

        ``keep_weights``: ``final`` holds the weights of trials that have ended, by id.

        Raises:
            ExperimentError: the study names something that is not there or cannot be.
            WorkloadError: the workload cannot be loaded, or breaks its contract.
            MalformedError: ``snapshot`` is none of this pack.
        """
        named = {t.id: t for t in pack.trials}
        held = Snapshot.decode(snapshot, named) if snapshot is not None else None
        self._started = time.perf_counter()
        self.pack = pack
        self.setup = StudyContext.load(pack.study, device, group)
        self.group = group
        trials = list(pack.trials)
        if held:
            trials = [named[trial] for trial in held.courses]
        kind = held.engine if held else pack.engine
        if trials:
            check_contract(self.setup, trials[0])
        self._engine: Engine = make_engine(kind, self.setup, trials)
        self.engine = self._engine.kind
        self._courses = {t.id: TrialProgress(next=self._look_after(0)) for t in trials}
        self._refinement = Refinement(pack.study)
        self._keep_weights = keep_weights
        self.final: dict[str, dict[str, torch.Tensor]] = {}
        self.paused: dict[str, bytes] = {}
        """Where the pack pauses dominated trials: what ``resume`` needs of each, by id. Its
        owner takes them out."""
        self.not_kept: str | None = None
        """Why nothing that a trial needs to go on can be kept, once that is known."""
        self._known = sorted(pack.known)
        self._least = self._known[0] if self._known else pack.study.budget_steps
        self._reached: list[int] = []
        self._step = 0
        self._train_seconds = 0.0
        self._evaluation_seconds = 0.0
        self._other_before = 0.0
        self._steps = 0
        if held:
            with _fitting():
                self._engine.load(held.state)
            self._courses = held.courses
            self._reached = held.reached
            self._known = sorted([*self._known, *self._reached])
            self._least = min(self._least, held.least)
            self._step = max(self._engine.steps, default=0)
            self._train_seconds, self._evaluation_seconds, self._other_before = held.seconds

    @property
    def step(self) -> int:
        """The most steps that an active trial has trained."""
        return self._step

    @property
    def steps(self) -> int:
        """Steps that this training has taken, of all its trials together."""
        return self._steps

    @property
    def active(self) -> tuple[str, ...]:
        """Ids of the trials still training."""
        return tuple(t.id for t in self._engine.trials)

    def know(self, steps_to_target: Iterable[int]) -> None:
        """Results of the study's trials found elsewhere since the pack began."""
        for steps in steps_to_target:
            self._know(steps)

    def _know(self, steps: int) -> None:
        insort(self._known, steps)
        self._least = min(self._least, steps)

    def add(self, trials: Sequence[Trial]) -> None:
        """Let further trials of the study begin here; valid between what ``run`` yields.

        Each trains as it does alone. Where no trial was left, ``run`` has ended: call it again.
        """
        self._engine.add(trials)
        self._courses |= {t.id: TrialProgress(next=self._look_after(0)) for t in trials}
        self.pack = replace(self.pack, trials=(*self.pack.trials, *trials))

    def resume(self, held: Mapping[str, bytes]) -> set[str]:
        """Take trials that have not trained yet to where another pack paused them, by id.

        That pack had the same engine. Returns those that are there: what cannot be read, or does
        not fit, leaves its trial at its beginning.
        """
        resumed = set()
        for row, trial in enumerate(self._engine.trials):
            if trial.id not in held:
                continue
            beginning = self._engine.copy([row])[0]
            try:
                course, state = paused_trials.read(held[trial.id])
                with _fitting():
                    self._engine.restore(row, gather(state, self.setup.device))
            except MalformedError:
                self._engine.restore(row, beginning)
                continue
            self._courses[trial.id] = course
            self._refinement.hold(self._engine, {row: course}, self._least)
            resumed.add(trial.id)
        self._step = max(self._engine.steps, default=0)
        return resumed

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[list[Event]]:
        """Train; one list a look, an empty one as a heartbeat between distant looks.

        Ends when no trial is active, or, without outcomes for those that are, once
        ``should_stop()`` (rank 0's, heard by all ranks at every heartbeat) is true.
        What the user's own code raises passes through.
        """
        chunk = 1
        while self._engine.trials:
            stop, chunk = self.group.agree((should_stop(), chunk))
            if stop:
                return
            took = self._advance(min(chunk, self._ahead()))
            chunk = _next_chunk(chunk, took)
            # A snapshot is never taken between reaching a look and looking.
            yield self._look()

    def _ahead(self) -> int:
        """Steps until a trial stands at a look."""
        steps = self._engine.steps
        nexts = [self._courses[t.id].next for t in self._engine.trials]
        return min(look - step for look, step in zip(nexts, steps, strict=True))

    def _look_after(self, step: int) -> int:
        study = self.pack.study
        return next_evaluation(step, study.evaluation_ratio, study.budget_steps)

    def _advance(self, steps: int) -> float:
        began = time.perf_counter()
        # An optimizer's averages of a gradient that has become zero decay into denormal numbers,
        # on which a processor is ten times slower; below 1e-38 they mean nothing.
        torch.set_flush_denormal(True)
        try:
            self._engine.advance(steps)
        finally:
            torch.set_flush_denormal(False)
        self._wait()
        took = time.perf_counter() - began
        self._train_seconds += took
        self._step = max(self._engine.steps)
        self._steps += steps * len(self._engine.trials)
        return took

    def _wait(self) -> None:
        if self.setup.device.type == "cuda":
            torch.cuda.synchronize(self.setup.device)

    def _look(self) -> list[Event]:
        """Measure the trials that stand at a look; say what was found and who has ended."""
        trials, steps = list(self._engine.trials), self._engine.steps
        courses = [self._courses[t.id] for t in trials]
        rows = [i for i, course in enumerate(courses) if course.next == steps[i]]
        if not rows:
            return []
        finite, measured = self._measure(rows, courses)
        looking = [i for i in rows if courses[i].walk is None]
        events: list[Event] = []
        reasons: dict[int, StopReason] = {}
        hits = []
        for i in looking:
            if not finite[i]:
                reasons[i] = "diverged"
                continue
            events.append(self._measurement(trials[i], steps[i], measured[i]))
            if courses[i].hit is None and self._hit(measured[i]):
                courses[i].hit = (steps[i], courses[i].last)
                hits.append(i)
                self._found(trials[i], steps[i])
                if self.pack.study.stop_at_target:
                    reasons[i] = "target"
            courses[i].last, courses[i].next = steps[i], self._look_after(steps[i])
        for i in looking:
            if i not in reasons and self._dominated(steps[i]):
                reasons[i] = "dominated"
            if i not in reasons and steps[i] == self.pack.study.budget_steps:
                reasons[i] = "budget"
        walks = [i for i in hits if self._refinement.settle(courses[i], self._least)]
        ended = {i: self._outcome(trials[i], steps[i], reason) for i, reason in reasons.items()}
        if self._keep_weights:
            self.final.update({trials[i].id: self._engine.weights(i) for i in ended})
        for i in (i for i in rows if i not in looking):
            end = self._refinement.look(self._engine, i, courses[i], self._hit(measured[i]))
            ended |= {i: end} if end else {}
        for i in walks:
            self._refinement.begin(self._engine, i, courses[i], ended.pop(i, None))
        left = {i: courses[i] for i in looking if i not in ended and i not in walks}
        self._refinement.hold(self._engine, left, self._least)
        self._set_aside([i for i, reason in reasons.items() if reason == "dominated"])
        if ended:
            self._engine.keep([i for i in range(len(trials)) if i not in ended])
            for i in ended:
                del self._courses[trials[i].id]
        return [*events, *(ended[i] for i in sorted(ended))]

    def _set_aside(self, rows: Sequence[int]) -> None:
        """Hold what dominated trials need to go on, where a later round may ask for it."""
        for row in rows if self.pack.keep_paused else ():
            trial = self._engine.trials[row].id
            try:
                held = paused_trials.write(self._courses[trial], self._engine.copy([row])[0])
            except UnencodableError as error:
                held, self.not_kept = None, str(error)
            if held is None:
                return  # the others are as large, and of the same kind
            self.paused[trial] = held

    def _measure(
        self, rows: Sequence[int], courses: Sequence[TrialProgress]
    ) -> tuple[list[bool], dict[int, dict[str, float]]]:
        """Which trials are finite, and the metrics of ``rows``; of one that walks its target's."""
        began = time.perf_counter()
        target = self.pack.study.targets[-1].metric
        finite = self._engine.finite()
        measured: dict[int, dict[str, float]] = {i: {} for i in rows}
        for split in self.setup.evaluated if any(finite[i] for i in rows) else ():
            asked = [i for i in rows if courses[i].walk is None or target.startswith(f"{split}_")]
            found = self._engine.evaluate(split, asked) if asked else []
            for i, metrics in zip(asked, found, strict=True):
                measured[i].update({f"{split}_{k}": v for k, v in metrics.items()})
        self._wait()
        self._evaluation_seconds += time.perf_counter() - began
        return finite, measured

    def _hit(self, metrics: Mapping[str, float]) -> bool:
        target = self.pack.study.targets[-1]
        return target.metric in metrics and target.hit(metrics[target.metric])

    def _found(self, trial: Trial, steps: int) -> None:
        """A trial has reached the target; those of other roles are not what a study is for."""
        if trial.role in _MINIMA:
            self._reached.append(steps)
            self._know(steps)

    def _dominated(self, step: int) -> bool:
        """Whether a trial that has not reached the target by now is out of the ``keep`` best."""
        study = self.pack.study
        if study.keep is None or not study.stop_at_target or len(self._known) < study.keep:
            return False
        return step >= self._known[study.keep - 1]

    def _measurement(self, trial: Trial, step: int, metrics: dict[str, float]) -> Measurement:
        return Measurement(
            trial=trial.id,
            step=step,
            examples=step * self.pack.study.batch_size,
            train_seconds=self._train_seconds,
            metrics=metrics,
        )

    def _outcome(self, trial: Trial, step: int, reason: StopReason) -> Outcome:
        course = self._courses[trial.id]
        spent = time.perf_counter() - self._started + self._other_before
        hit, refined = course.hit or (None, None), course.refined or (None, None)
        return Outcome(
            trial=trial.id,
            status=_STATUS[reason],
            stop_reason=reason,
            steps_run=step,
            examples_run=step * self.pack.study.batch_size,
            steps_to_target=hit[0],
            last_miss=hit[1],
            refined_steps=refined[0],
            refined_last_miss=refined[1],
            train_seconds=self._train_seconds,
            evaluation_seconds=self._evaluation_seconds,
            other_seconds=max(0.0, spent - self._train_seconds - self._evaluation_seconds),
        )

    def weights(self, trial: str) -> dict[str, torch.Tensor]:
        """A copy of an active trial's parameters and buffers by name."""
        return self._engine.weights(self.active.index(trial))

    def snapshot(self) -> bytes | None:
        """All that is needed to continue exactly; valid between what ``run`` yields.

        ``None`` where it cannot be kept: ``not_kept`` says why.
        """
        spent = time.perf_counter() - self._started + self._other_before
        held = Snapshot(
            engine=self.engine,  # type: ignore[arg-type]
            state=self._engine.state(),
            courses={trial: self._courses[trial] for trial in self.active},
            reached=self._reached,
            least=self._least,
            seconds=(self._train_seconds, self._evaluation_seconds, spent),
        )
        try:
            return held.encode()
        except UnencodableError as error:
            self.not_kept = str(error)
            return None


@contextmanager
def _fitting() -> Iterator[None]:
    """What an engine says of a state of another form than its own."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise MalformedError("a state of another engine or pack") from error


def _next_chunk(chunk: int, seconds: float) -> int:
    """Steps to train before the next heartbeat, from how long the last ``chunk`` took."""
    if seconds <= 0:
        return chunk * 8
    return max(1, min(chunk * 8, int(chunk * 0.5 * _HEARTBEAT_SECONDS / seconds)))
