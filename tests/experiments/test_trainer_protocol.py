"""What a worker relies on of whatever trains a pack: the real training and its fake alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from experiments.encoding import MalformedError
from experiments.execution.worker import Trainer
from experiments.plan import Measurement, Outcome, Pack, Study, Trial
from experiments.training.evaluation_grid import evaluation_steps
from experiments.training.pack_training import Training
from tests import problems
from tests.experiments import fakes
from tests.problems import said

pytestmark = pytest.mark.usefixtures("one_thread")

Events = list[Measurement | Outcome]
ENDS = {"early": "target", "late": "target", "never": "budget", "wild": "diverged"}


@dataclass(frozen=True)
class Case:
    """A trainer, and learning rates under which a trial reaches its target early, late, or never,
    and under which it diverges."""

    kind: type[Any]
    study: Study
    rates: dict[str, float]

    def trials(self, *names: str) -> tuple[Trial, ...]:
        return tuple(
            Trial(id=name, index=i, seed=i, metaparameters={"learning_rate": self.rates[name]})
            for i, name in enumerate(self.rates)
            if name in (names or self.rates)
        )

    def pack(self, *names: str, keep: int | None = None, **changes: Any) -> Pack:
        of = replace(self.study, keep=keep)
        return Pack(id="pack", study=of, trials=self.trials(*names), **changes)

    def make(self, pack: Pack, snapshot: bytes | None = None) -> Trainer:
        return self.kind(pack, snapshot=snapshot)


REAL = problems.study(budget_steps=100, evaluation_ratio=1.2, target="validation_error < 0.1")
CASES = {
    "real": Case(Training, REAL, {"early": 1.0, "late": 0.3, "never": 1e-4, "wild": 1e39}),
    "fake": Case(
        fakes.FakeTraining, fakes.study(), {"early": 0.1, "late": 0.4, "never": 1.2, "wild": -0.1}
    ),
}
each_trainer = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def events_of(training: Trainer) -> Events:
    return [event for part in training.run(lambda: False) for event in part]


@each_trainer
def test_every_trial_is_evaluated_on_the_grid_and_ends_once(case: Case) -> None:
    training = case.make(case.pack())
    assert (training.step, training.steps, training.paused, training.not_kept) == (0, 0, {}, None)
    assert training.engine in ("module", "stacked")
    assert training.active == tuple(case.rates)
    events: Events = []
    for part in training.run(lambda: False):
        step = training.step
        events += part
        assert all(e.step == step for e in part if isinstance(e, Measurement))
        ended = {e.trial for e in events if isinstance(e, Outcome)}
        assert training.active == tuple(name for name in case.rates if name not in ended)
    ends = problems.outcomes(events)
    assert {trial: end.stop_reason for trial, end in ends.items()} == ENDS
    assert training.steps == sum(end.steps_run for end in ends.values())
    grid, target = evaluation_steps(1.2, 100), case.study.targets[-1]
    for trial, end in ends.items():
        mine = [e for e in events if e.trial == trial]
        assert mine[-1] is end
        measured = [e for e in mine[:-1] if isinstance(e, Measurement)]
        assert len(measured) == len(mine) - 1
        steps = [m.step for m in measured]
        assert tuple(steps) == grid[: len(steps)]
        assert all(m.examples == m.step * case.study.batch_size for m in measured)
        hits = [m.step for m in measured if target.hit(m.metrics[target.metric])]
        assert hits == ([] if end.steps_to_target is None else [end.steps_to_target])
        assert (end.status == "INFEASIBLE") == (end.stop_reason == "diverged")
        if end.stop_reason == "target":
            assert steps[-2:] == [end.last_miss, end.steps_to_target] == [steps[-2], end.steps_run]
        if end.stop_reason == "budget":
            assert steps[-1] == end.steps_run == 100


@each_trainer
def test_what_other_packs_reached_stops_who_is_worse(case: Case) -> None:
    alone = problems.outcomes(events_of(case.make(case.pack())))
    hit = alone["early"].steps_to_target
    assert hit is not None
    later = next(step for step in evaluation_steps(1.2, 100) if step > hit)
    for known, told in (((hit,), ()), ((), (hit,)), ((later,), (hit,))):
        training = case.make(case.pack("late", "never", keep=1, known=known))
        training.know(told)
        ends = problems.outcomes(events_of(training)).values()
        assert [(e.stop_reason, e.steps_run) for e in ends] == [("dominated", hit)] * 2
    assert training.paused == {}
    ties = case.make(case.pack("early", keep=1, known=(hit,)))
    assert problems.outcomes(events_of(ties))["early"].stop_reason == "target"


@each_trainer
def test_who_joins_trains_as_alone(case: Case) -> None:
    alone = said(events_of(case.make(case.pack())))
    training, events = case.make(case.pack("late", "wild")), []
    for number, part in enumerate(training.run(lambda: False)):
        events += part
        if number == 3:
            training.add(case.trials("never"))
            assert training.active[-1] == "never"
    assert training.active == ()
    training.add(case.trials("early"))
    events += events_of(training)
    assert said(events) == alone


@pytest.mark.slow
@each_trainer
def test_it_goes_on_from_a_snapshot_and_from_another(case: Case) -> None:
    pack = case.pack(keep=1)
    expected = said(events_of(case.make(pack)))
    assert {rows[-1].stop_reason for rows in expected.values()} == {
        "target",
        "dominated",
        "diverged",
    }
    for often in (1, 3):
        training, events = case.make(pack), []
        while training.active:
            for part in training.run(lambda: False):
                events += part
                if len(events) % often == 0:
                    break
            if training.active:
                data, before = training.snapshot(), (training.step, training.active)
                assert data is not None
                training = case.make(pack, data)
                assert (training.step, training.active) == before
        assert said(events) == expected
    for other in (b"", b"nothing", b"[1, 2]"):
        with pytest.raises(MalformedError):
            case.make(pack, other)


@each_trainer
def test_a_stop_ends_no_trial(case: Case) -> None:
    training, stops = case.make(case.pack()), iter([False, False, True])
    parts = list(training.run(lambda: next(stops)))
    assert len(parts) == 2
    ended = {e.trial for part in parts for e in part if isinstance(e, Outcome)}
    assert training.active == tuple(name for name in case.rates if name not in ended) != ()
    whole = [*(e for part in parts for e in part), *events_of(training)]
    assert said(whole) == said(events_of(case.make(case.pack())))


@each_trainer
def test_a_paused_trial_goes_on(case: Case) -> None:
    alone = said(events_of(case.make(case.pack("late"))))["late"]
    training = case.make(case.pack("late", keep=1, known=(9,), keep_paused=True))
    before = said(events_of(training))["late"]
    assert before[-1].stop_reason == "dominated"
    assert set(training.paused) == {"late"}
    again = case.make(case.pack("early", "late"))
    assert set(again.resume({"late": b"nothing"})) == set()  # it begins at its beginning
    assert set(again.resume(training.paused)) == {"late"}
    assert again.step == before[-1].steps_run
    assert [*before[:-1], *said(events_of(again))["late"]] == alone
