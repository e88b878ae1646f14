"""What Ray Tune is told: packs, a few at a time, and when there are no more."""

from __future__ import annotations

from typing import Any

import pytest
import ray.tune

from experiments.execution.ray.lost_workers import explain
from experiments.execution.ray.searcher import PackSearcher
from experiments.execution.ray.worker import reporting
from experiments.execution.signals import Stop
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.messages import Assignment, Ended, Event, Message, Over
from experiments.scheduling.rounds import Record
from experiments.scheduling.study_state import StudyState
from tests.experiments.fakes import listed, points, study
from tests.experiments.test_dispatch import finish, outcome, train


class Tuner:
    """Asks a searcher as Tune does."""

    def __init__(
        self, slots: int = 2, limit: int = 100, trials: int = 16, pack_size: int = 64
    ) -> None:
        self.events: list[Event] = []
        values = points(80, diverging=0)
        states = [
            StudyState(
                study=listed(study(id=name, trials=trials, batch_size=size), values),
                columns={},
                label=name,
            )
            for name, size in (("a", 8), ("b", 64))
        ]
        self.stop = Stop()
        self.dispatcher = Dispatcher(
            states,
            slots=slots,
            pack_size=pack_size,
            observer=self.events.append,
            stop=lambda: bool(self.stop),
        )
        self.sent: list[Assignment] = []
        self.drained, self.over = 0, False
        self.searcher = PackSearcher(
            self.dispatcher,
            send=self.sent.append,
            drain=self.drain,
            slots=lambda: slots,
            limit=limit,
            explain=lambda trial, _: explain(f"nothing of {trial}", times=3),
            over=lambda: self.over,
        )

    def drain(self) -> None:
        self.drained += 1

    def ask(self, name: str) -> Any:
        return self.searcher.suggest(name)

    def finish(self, name: str) -> None:
        (assignment,) = (
            assignment for assignment in self.sent if assignment.pack.id == self.searcher._out[name]
        )
        finish(self.dispatcher, assignment)
        self.searcher.on_trial_complete(name)


def test_packs_until_all_is_done() -> None:
    tuner = Tuner(slots=1)
    assert tuner.ask("t0") == {"pack": tuner.sent[0].pack.id}
    assert tuner.ask("t1") is None  # no slot
    tuner.finish("t0")
    assert tuner.ask("t2") == {"pack": tuner.sent[1].pack.id}
    tuner.finish("t2")
    assert tuner.ask("t3") == "FINISHED"
    assert tuner.drained == 2  # before each end is judged


def test_it_waits_for_a_pack_that_may_open_the_way() -> None:
    tuner = Tuner(slots=2)
    tuner.ask("t0")
    assert tuner.ask("t1") is None  # nobody knows yet whether this shape trains at all
    train(tuner.dispatcher, tuner.sent[0])
    assert tuner.ask("t2") == {"pack": tuner.sent[1].pack.id}


def test_a_tuner_ends_after_its_share() -> None:
    tuner = Tuner(slots=1, limit=1)
    tuner.ask("t0")
    tuner.finish("t0")
    assert tuner.ask("t1") == "FINISHED"
    assert not tuner.dispatcher.finished  # the next one goes on


def test_a_stop_ends_it() -> None:
    tuner = Tuner()
    tuner.stop = Stop(0.0)
    assert tuner.ask("t0") == "FINISHED"


def test_an_error_beside_tune_ends_it() -> None:
    """Its last worker has ended without a message that arrived: Tune would go on to ask for a pack,
    and the dispatcher to wait for that worker."""
    tuner = Tuner(slots=1)
    tuner.ask("t0")
    assert tuner.ask("t1") is None
    tuner.over = True
    assert tuner.ask("t1") == "FINISHED"


def test_a_tune_that_has_ended_fails_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises ``SystemExit`` from the first report; from a second one nobody would return."""
    reports: list[dict[str, int]] = []

    def report(counts: dict[str, int]) -> None:
        reports.append(counts)
        raise SystemExit(0)

    monkeypatch.setattr(ray.tune, "report", report)
    sent: list[Message] = []
    send = reporting(sent.append)
    message = Ended(pack="p", study="a", outcomes=(outcome("t"),), run="run")
    send(message)
    send(message)
    assert sent == [message, message]
    assert len(reports) == 1


def test_a_worker_that_died_for_good_fails_its_pack() -> None:
    tuner = Tuner(slots=1, trials=1)
    tuner.ask("t0")
    tuner.searcher.on_trial_complete("t0", error=True)
    (over,) = (event for event in tuner.events if isinstance(event, Over))
    assert over.failure is not None
    assert (over.study, over.failure.message) == ("a", "nothing of t0")
    (record,) = tuner.dispatcher.states[0].records.values()
    assert record == Record(status="INCOMPLETE", stop_reason="error", steps_run=0)


def test_tune_writes_none_of_it_down() -> None:
    assert Tuner().searcher.__getstate__() == {}
