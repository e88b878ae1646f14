"""Trials that join a pack as others end: they are claimed, kept and recorded."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.execution.ledger import Ledger
from experiments.execution.ray.mailbox import Mailbox
from experiments.execution.worker import Pace, run_pack
from experiments.plan import Pack, Trial
from experiments.records.snapshots import unpack_snapshot
from experiments.scheduling.messages import Assignment, Begun, Channel, Ended, Message, Over, Taken
from tests.experiments.fakes import FakeTraining, Pair, listed, points, study
from tests.experiments.test_worker import results

QUICK = Pace(ask=0.002, renew=0.02, commit=0.0, snapshot=0.0)
SIZE = 4


class Driver:
    """Assigns the next of some trials as others end, and knows when the worker has heard of it."""

    def __init__(self, first: Assignment, trials: Sequence[Trial] = ()) -> None:
        self.assignment, self.left = first, list(trials)
        self.messages: list[Message] = []
        self.stop = False
        self._ended: set[str] = set()
        self._asked = 2
        self.channel = Channel(send=self.send, ask=self.ask)

    def send(self, message: Message) -> None:
        self.messages.append(message)
        if isinstance(message, Taken):
            self._ended |= set(message.trials)
        if isinstance(message, Ended):
            self._ended |= {outcome.trial for outcome in message.outcomes}
        active = len(self.assignment.wanted - self._ended)
        places = (self.assignment.size or 0) - active
        if self.left and active and places > 0:
            self._assign(places)

    def _assign(self, places: int) -> None:
        new, self.left = self.left[:places], self.left[places:]
        news = assignment(new, of=self.assignment.pack.study)
        self.assignment = self.assignment.joined_by(news)
        self._asked = 0

    def ask(self, before: Assignment) -> Assignment:
        self._asked += 1
        news = self.assignment.after(len(before.pack.trials))
        return replace(before.joined_by(news), stop=self.stop)

    def wait(self) -> None:
        """Until the worker has what was assigned: the answer before the last one is taken in."""
        until = time.monotonic() + 10
        while self._asked < 2 and time.monotonic() < until:
            time.sleep(0.001)

    def said(self, kind: type) -> list[Any]:
        return [word for word in self.messages if isinstance(word, kind)]

    @property
    def committed(self) -> list[str]:
        ended = [word for word in self.said(Ended) if word.run]
        return [outcome.trial for word in ended for outcome in word.outcomes]


def patient(driver: Driver, base: type = FakeTraining, stop_at: int | None = None) -> type:
    """A trainer that waits for the driver's answers; ``stop_at`` so many looks it is stopped."""

    class Patient(base):
        def run(self, should_stop: Any = None) -> Any:
            del should_stop
            for number, events in enumerate(super().run(lambda: driver.stop)):
                yield events
                driver.wait()
                driver.stop = stop_at is not None and number >= stop_at

    return Patient


def fake_trials(count: int, **changes: Any) -> tuple[Trial, ...]:
    return tuple(listed(study(**changes), points(80)).draw(0, count))


def assignment(trials: Sequence[Trial], size: int | None = SIZE, **changes: Any) -> Assignment:
    of = changes.pop("of", None) or study(keep=None, **changes)
    return Assignment(
        pack=Pack(id="pack", study=of, trials=tuple(trials), engine="module"),
        round=0,
        columns={"study": of.id, "workload": "fake", "batch_size": of.batch_size},
        wanted=frozenset(trial.id for trial in trials),
        size=size,
    )


def run(driver: Driver, root: Path, trainer: type, pace: Pace = QUICK) -> Over:
    ledger = Ledger(str(root))
    return run_pack(driver.assignment, ledger, driver.channel, trainer=trainer, pace=pace)


def whole(root: Path, trials: Sequence[Trial], **changes: Any) -> dict[str, Any]:
    """What the trials come to in one pack that none joins."""
    run(Driver(assignment(trials, None, **changes)), root, changes.pop("trainer", FakeTraining))
    return results(root)


@pytest.mark.slow
def test_a_pack_is_refilled_to_its_size(tmp_path: Path) -> None:
    trials = fake_trials(14)
    driver = Driver(assignment(trials[:SIZE]), trials[SIZE:])
    training = patient(driver)
    most = []

    class Counts(training):  # type: ignore[misc, valid-type]
        def add(self, new: Sequence[Trial]) -> None:
            super().add(new)
            most.append(len(self.active))
            claimed = Ledger(str(tmp_path)).claims.live()[0]["trials"]
            assert set(self.active) <= set(claimed)  # before they train

    assert run(driver, tmp_path, Counts).end == "done"
    assert sorted(driver.committed) == sorted(t.id for t in trials)
    assert max(most) == SIZE
    assert len(most) > 2
    assert results(tmp_path) == whole(tmp_path / "whole", trials)
    ledger = Ledger(str(tmp_path))
    assert ledger.claims.all() == []
    assert ledger.list() == []
    assert set(ledger.store.trials()["pack_models"]) <= set(range(SIZE, 15))


def test_a_snapshot_lists_who_has_joined(tmp_path: Path) -> None:
    trials = fake_trials(12)
    driver = Driver(assignment(trials[:SIZE]), trials[SIZE:])
    end = run(driver, tmp_path, patient(driver, stop_at=25))
    assert end.end == "stopped"
    header, _ = unpack_snapshot(Ledger(str(tmp_path)).load("pack") or b"") or pytest.fail("none")
    joined = len(header.trials)
    assert SIZE < joined < 12
    assert header.trials == tuple(t.id for t in trials[:joined])
    assert not set(header.active) & set(driver.committed)
    again = replace(assignment(trials[:joined]), wanted=frozenset(header.active))
    rest = Driver(again, trials[joined:])
    assert run(rest, tmp_path, patient(rest)).end == "done"
    assert results(tmp_path) == whole(tmp_path / "whole", trials)


def test_who_joined_after_the_snapshot_begins_with_the_next_worker(tmp_path: Path) -> None:
    """A worker has died: its successor is assigned all that its predecessor was."""
    trials = fake_trials(12)
    driver = Driver(assignment(trials[:SIZE]), trials[SIZE:])
    run(driver, tmp_path, patient(driver, stop_at=25))
    header, _ = unpack_snapshot(Ledger(str(tmp_path)).load("pack") or b"") or pytest.fail("none")
    driver._assign(2)  # never heard
    mailbox = Mailbox()
    mailbox.put(assignment(trials[:SIZE]))
    mailbox.add([driver.assignment.after(SIZE)])
    for word in driver.messages:
        mailbox.post(word)
    found = mailbox.ask("pack")
    assert mailbox.ask("pack") == found
    assert mailbox.ask("pack", len(found.pack.trials)).pack.trials == ()
    assert found.wanted == driver.assignment.wanted - set(driver.committed)
    successor = Driver(found, driver.left)
    assert run(successor, tmp_path, patient(successor)).end == "done"
    assert len(found.pack.trials) == len(header.trials) + 2
    assert results(tmp_path) == whole(tmp_path / "whole", trials)


def test_what_others_claim_or_recorded_is_left_to_them(tmp_path: Path) -> None:
    trials = fake_trials(8)
    other = Ledger(str(tmp_path))
    run(Driver(assignment(trials[4:5], None)), tmp_path, FakeTraining)  # by another driver
    assert other.take("other", [trials[5].id], {}, {})

    class OneByOne(Driver):
        def _assign(self, places: int) -> None:
            if self._asked >= 2:  # the worker has heard of the one before
                super()._assign(min(places, 1))

    driver = OneByOne(assignment(trials[:SIZE]), trials[SIZE:])
    before = len(other.store.trials())
    assert run(driver, tmp_path, patient(driver)).end == "done"
    taken = [trial for word in driver.said(Taken) for trial in word.trials]
    assert taken == [trials[4].id, trials[5].id]
    assert set(driver.committed) == {t.id for t in trials} - set(taken)
    rows = other.store.trials()
    assert len(rows) == before + 6
    assert rows["pack_models"].max() == 6
    other.release("other")
    mailbox = Mailbox()
    mailbox.put(driver.assignment)
    for word in driver.messages:
        mailbox.post(word)
    assert not mailbox.ask("pack").wanted & set(taken)


@pytest.mark.slow
def test_every_rank_lets_the_same_trials_join(tmp_path: Path) -> None:
    trials = fake_trials(11)
    driver = Driver(assignment(trials[:SIZE]), trials[SIZE:])
    line: queue.Queue[Any] = queue.Queue()
    joined: dict[int, list[tuple[str, int]]] = {0: [], 1: []}

    def trainer(base: type, rank: int) -> type:
        class Ranked(base):
            def add(self, new: Sequence[Trial]) -> None:
                super().add(new)
                joined[rank] += [(trial.id, self.step) for trial in new]

        return Ranked

    def second() -> None:
        deaf = Channel(send=lambda _: None, ask=lambda known: known)
        how: Any = {"trainer": trainer(FakeTraining, 1), "pace": QUICK, "group": Pair(1, line)}
        run_pack(assignment(trials[:SIZE]), Ledger(str(tmp_path)), deaf, **how)

    thread = threading.Thread(target=second)
    thread.start()
    how: Any = {"trainer": trainer(patient(driver), 0), "pace": QUICK, "group": Pair(0, line)}
    end = run_pack(assignment(trials[:SIZE]), Ledger(str(tmp_path)), driver.channel, **how)
    thread.join(30)
    assert not thread.is_alive()
    assert end.end == "done"
    assert [trial for trial, _ in joined[0]] == [t.id for t in trials[SIZE:]]
    assert joined[0] == joined[1]
    assert results(tmp_path) == whole(tmp_path / "whole", trials)


@pytest.mark.slow
def test_in_this_process_packs_are_refilled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiments.execution.sweep import sweep as real_sweep
    from tests.experiments.test_sweep import experiment

    monkeypatch.setenv("FAKE_SECONDS", "0.005")
    seen: list[Any] = []
    did = real_sweep(
        experiment(batch_size="64", trials=40, keep="off"),
        results=tmp_path,
        address="none",
        trainer=FakeTraining,
        pace=Pace(ask=0.002),
        observer=seen.append,
        pack_size=8,
    )
    rows = Ledger(str(tmp_path)).store.trials()
    assert did.trials == len(rows) == rows["trial"].nunique() >= 40
    packs = [event for event in seen if isinstance(event, Begun)]
    assert len(packs) == rows["pack"].nunique()
    assert rows["pack_models"].max() > 8  # some trials joined
