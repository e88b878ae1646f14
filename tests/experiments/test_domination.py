"""Dominated stopping is exact: the best trials of a study, and their brackets, are those of a
search without it, in whatever order, packs and pieces it is trained."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.plan import Measurement, Outcome, Pack, Study
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.messages import Assignment, Taken
from experiments.scheduling.rounds import Record
from experiments.scheduling.study_state import StudyState
from results.targets.target import Target
from tests.experiments.fakes import FakeTraining, listed, points, study

EASIER = Target.parse("validation_error < 0.11")

Best = set[tuple[int, str, int]]
"""Steps to target, trial and last miss of every trial up to X(keep)."""


@dataclass
class Sweep:
    """Studies trained by the real dispatcher in fake packs, whose looks are shuffled."""

    plans: list[Study]
    order: random.Random
    refused: float = 0.0
    """The share of trials that do not join a pack: another driver has had them meanwhile."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    measured: dict[str, list[Measurement]] = field(default_factory=dict)
    paused: dict[str, bytes] = field(default_factory=dict)
    killed: bool = False

    def run(self, *, slots: int, size: int, looks: int | None = None) -> bool:
        """Train, at most ``looks`` looks of packs, then drop all that is in training (a kill)."""
        states = [
            StudyState(study=plan, columns={}, label=plan.id, records=self._records(plan))
            for plan in self.plans
        ]
        dispatcher = Dispatcher(states, slots=slots, pack_size=size, observer=lambda _: None)
        training: dict[str, FakeTraining] = {}
        told: dict[str, int] = {}
        assignments: dict[str, Assignment] = {}

        out: dict[str, Iterator[list[Measurement | Outcome]]] = {}
        while looks is None or looks > 0:
            while len(out) < slots and isinstance(assignment := dispatcher.next(), Assignment):
                pack = assignment.pack
                training[pack.id], told[pack.id] = FakeTraining(pack), 0
                taken = {t.id: self.paused.pop(t.id) for t in pack.trials if t.id in self.paused}
                training[pack.id].resume(taken)
                out[pack.id] = training[pack.id].run()
                dispatcher.receive(assignment.begun("module"))
                assignments[pack.id] = assignment
            if not out:
                assert dispatcher.finished
                return True
            pack_id = self.order.choice(sorted(out))
            for news in dispatcher.news():
                pack, one = news.pack, training[news.pack.id]
                one.know(news.hits[told[pack.id] :])
                told[pack.id] = len(news.hits)
                assert all(trial.round == one.pack.trials[0].round for trial in pack.trials)
                if pack.trials and self.order.random() < self.refused:
                    dispatcher.receive(Taken(pack=pack.id, trials=tuple(t.id for t in pack.trials)))
                    dispatcher.merge({}, ())  # it has given them up
                    continue
                one.add(pack.trials)
                one.resume(
                    {t.id: self.paused.pop(t.id) for t in pack.trials if t.id in self.paused}
                )
                assert len(one.active) <= (assignments[pack.id].size or 0)
            self._look(dispatcher, assignments[pack_id], out)
            self.paused |= training[pack_id].paused
            training[pack_id].paused.clear()
            looks = None if looks is None else looks - 1
        self.killed = True
        return False

    def _look(
        self,
        dispatcher: Dispatcher,
        assignment: Assignment,
        out: dict[str, Iterator[list[Measurement | Outcome]]],
    ) -> None:
        events = next(out[assignment.pack.id], None)
        if events is None:
            del out[assignment.pack.id]
            dispatcher.receive(assignment.over("done"))
            return
        ended = [replace(o, train_seconds=self.order.random()) for o in self.take_in(events)]
        if ended:
            dispatcher.receive(assignment.ended(ended, "run"))

    def take_in(self, events: Sequence[Measurement | Outcome]) -> tuple[Outcome, ...]:
        """Record what a look gave; the trials that it ended."""
        for event in events:
            if isinstance(event, Measurement):
                before = self.measured.setdefault(event.trial, [])
                assert self.killed or not before or before[-1].step < event.step  # nothing twice
                before.append(event)
        ended = tuple(event for event in events if isinstance(event, Outcome))
        for outcome in ended:
            if outcome.trial in self.outcomes:  # set aside before
                paused = self.outcomes[outcome.trial]
                assert paused.stop_reason == "dominated"
                assert paused.steps_run < outcome.steps_run
            self.outcomes[outcome.trial] = outcome
        return ended

    def _records(self, plan: Study) -> dict[str, Record]:
        own = f"{plan.id}-"
        return {t: Record.of(o) for t, o in self.outcomes.items() if t.startswith(own)}

    def best(self, plan: Study, keep: int) -> Best:
        """Of a study's trials, by what was recorded."""
        own = f"{plan.id}-"
        hits = [
            (o.steps_to_target, t, o.last_miss or 0)
            for t, o in self.outcomes.items()
            if t.startswith(own) and o.steps_to_target is not None
        ]
        return _up_to(hits, keep)

    def best_by_measurements(self, plan: Study, keep: int, target: Target) -> Best:
        """The same under another target, from the looks."""
        hits = []
        for trial in self.outcomes:
            if not trial.startswith(f"{plan.id}-"):
                continue
            miss = 0
            for look in sorted(self.measured.get(trial, []), key=lambda m: m.step):
                if target.hit(look.metrics[target.metric]):
                    hits.append((look.step, trial, miss))
                    break
                miss = look.step
        return _up_to(hits, keep)


def _up_to(hits: list[tuple[int, str, int]], keep: int) -> Best:
    hits.sort()
    last = hits[keep - 1][0] if len(hits) >= keep else hits[-1][0] if hits else 0
    return {hit for hit in hits if hit[0] <= last}


def plans(
    seed: int, trials: int, keep: int | None, diverging: float = 0.0, most: float = 1.8
) -> list[Study]:
    """Two studies that are neighbours, of different points."""
    return [
        listed(
            study(id=name, batch_size=size, trials=trials, keep=keep, evaluation_ratio=1.1),
            [min(x, most) for x in points(4 * trials, seed=seed + size, diverging=diverging)],
            {"learning_rate": {"linear": [-1, 2]}},
        )
        for name, size in (("a", 32), ("b", 64))
    ]


def alone(of: Sweep, keep: int | None) -> Sweep:
    """Every trial that ``of`` has drawn, each in a pack of its own, without dominated stopping."""
    whole = Sweep(of.plans, random.Random(0))
    for plan in of.plans:
        rows = [t for t in plan.draw(0, plan.max_rows) if t.id in of.outcomes]
        for trial in rows:
            free = replace(plan, keep=keep)
            for events in FakeTraining(Pack(id="one", study=free, trials=(trial,))).run():
                whole.take_in(events)
    return whole


@pytest.mark.slow
@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    trials=st.sampled_from([4, 16, 24, 40]),
    keep=st.integers(1, 6),
    slots=st.integers(1, 3),
    size=st.sampled_from([1, 3, 8, 64]),
    diverging=st.sampled_from([0.0, 0.3]),
    refused=st.sampled_from([0.0, 0.1, 1.0]),
    kills=st.lists(st.integers(1, 60), max_size=3),
)
def test_the_best_trials_are_those_of_a_search_without_it(
    seed: int,
    trials: int,
    keep: int,
    slots: int,
    size: int,
    diverging: float,
    refused: float,
    kills: list[int],
) -> None:
    """Whoever joins which pack: none is above its size, or trains a trial of a later round."""
    stopped = Sweep(plans(seed, trials, keep, diverging), random.Random(seed), refused)
    for looks in kills:
        stopped.run(slots=slots, size=size, looks=looks)
    assert stopped.run(slots=slots, size=size)
    whole = alone(stopped, None)
    for plan in stopped.plans:
        assert stopped.best(plan, keep) == whole.best(plan, keep)
        again = stopped.best_by_measurements(plan, keep, EASIER)
        assert again == whole.best_by_measurements(plan, keep, EASIER)
    plain = Sweep(plans(seed, trials, keep, diverging), random.Random(0))
    plain.run(slots=1, size=64)
    assert stopped.outcomes.keys() == plain.outcomes.keys()  # order changes the cost alone


def test_without_infeasible_trials_the_rows_are_those_of_a_search_without_it() -> None:
    """With such, a trial that was dominated before it would have diverged is not replaced."""
    drawn = []
    for keep in (None, 2):
        of = Sweep(plans(3, 24, keep, most=1.5), random.Random(0))
        of.run(slots=2, size=8)
        drawn.append(of.outcomes.keys())
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 48


def test_it_saves_steps() -> None:
    """Else the property above would hold of a sweep that never stops anything."""
    whole = Sweep(plans(7, 40, None), random.Random(0))
    whole.run(slots=1, size=8)
    stopped = Sweep(plans(7, 40, 4), random.Random(0))
    stopped.run(slots=1, size=8)
    steps = [sum(o.steps_run for o in one.outcomes.values()) for one in (whole, stopped)]
    assert steps[1] < 0.7 * steps[0]
