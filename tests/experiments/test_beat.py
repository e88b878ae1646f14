"""Trials that hang: noticed by the beat, interrupted, recorded, and trained around."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import results as dataset
from experiments.execution.beat import Beat, Cut, Pace, Position
from experiments.execution.ledger import Ledger
from experiments.execution.signals import Interrupted, Stop
from experiments.execution.sweep import sweep
from tests.experiments.fakes import FakeTraining
from tests.experiments.sweeping import fake
from tests.experiments.test_worker import Line, assignment

QUICK = Pace(ask=0.02, renew=1.0, commit=0.0, snapshot=0.0, hang=1.0, stop=0.5, leave=60.0)


def beat_of(root: Path, **pace: float) -> Beat:
    """One that only counts: its thread does not run."""
    given = assignment(), Ledger(str(root)), Line().channel, Pace(**pace)
    return Beat(*given, Position, lambda: None)


def beats(beat: Beat, number: int, *, seconds: float = 1.0) -> bool:
    """Whether one of so many beats interrupts; none is left out."""
    due = False
    for _ in range(number):
        due |= beat.count(seconds)
    return due


def ask_to_stop(beat: Beat) -> None:
    beat.assignment = replace(beat.assignment, stop=True)


def test_what_makes_no_progress_hangs(tmp_path: Path) -> None:
    beat = beat_of(tmp_path, hang=60.0, stop=8.0)

    def events() -> Iterator[list[str]]:
        assert not beats(beat, 59)
        yield []
        assert not beats(beat, 59)  # the beat between was progress
        assert beats(beat, 1)

    list(beat.over(events()))
    assert beat.cuts
    assert beat.failure is not None
    assert beat.failure.message.startswith("hung: no progress for 60 s, at test_beat.py:")
    assert beat.failure.cause == "hung"


def test_evaluations_that_are_far_apart_are_no_hang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Twenty times the median interval between evaluations, where that is longer."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    beat = beat_of(tmp_path, hang=60.0, stop=8.0)

    def events() -> Iterator[list[str]]:
        for _ in range(5):
            now[0] += 10.0
            yield ["an evaluation"]
        assert beat.limit == 200.0
        assert not beats(beat, 199)
        assert beats(beat, 1)

    list(beat.over(events()))


@pytest.mark.parametrize("gap", [1e9, float("inf")])
def test_a_suspended_process_is_not_silent(gap: float, tmp_path: Path) -> None:
    """A machine that slept, or a clock that jumped: one beat counts five seconds at most."""
    beat = beat_of(tmp_path, hang=60.0, stop=8.0)

    def events() -> Iterator[list[str]]:
        assert not beats(beat, 11, seconds=gap)
        assert beats(beat, 1, seconds=gap)
        yield []

    list(beat.over(events()))


def test_loading_has_no_limit_but_can_be_stopped(tmp_path: Path) -> None:
    beat = beat_of(tmp_path, hang=1.0, stop=8.0)
    with beat.setting_up():
        assert not beats(beat, 10_000)
        ask_to_stop(beat)
        assert not beats(beat, 7)
        assert beats(beat, 1)
    assert beat.cuts
    assert beat.failure is None


def test_writing_is_not_interrupted(tmp_path: Path) -> None:
    beat = beat_of(tmp_path, hang=1.0, stop=1.0)
    ask_to_stop(beat)
    for _ in beat.over(iter([["an evaluation"]])):
        assert not beats(beat, 100)


def test_a_loop_in_another_thread_ends_at_its_next_line(tmp_path: Path) -> None:
    caught: list[type[BaseException]] = []
    ready = threading.Event()
    waiting: list[Beat] = []

    def train() -> None:
        beat = beat_of(tmp_path, hang=1.0, stop=1.0)
        waiting.append(beat)

        def events() -> Iterator[list[str]]:
            ready.set()
            while True:
                time.sleep(0.01)
            yield []

        try:
            with beat.interrupting():
                list(beat.over(events()))
        except Cut as cut:
            caught.append(type(cut))

    thread = threading.Thread(target=train)
    thread.start()
    ready.wait(60)
    assert beats(waiting[0], 20)
    waiting[0].interrupt()
    thread.join(60)
    assert caught == [Cut]


class Hangs(FakeTraining):
    """A trial that never returns from a later step: it sleeps where it is not interrupted."""

    culprit = "-7"

    def _raise(self, trials: Sequence[str]) -> None:
        if any(trial.endswith(self.culprit) for trial in trials):
            self.stuck(next(trial for trial in trials if trial.endswith(self.culprit)))

    def stuck(self, trial: str) -> None:
        del trial
        while True:
            time.sleep(1000)


class HangsInTurn(Hangs):
    """Models that train one after the other: the one that hangs is known."""

    def stuck(self, trial: str) -> None:
        self.current = trial
        super().stuck(trial)


def single_study(**changes: Any) -> Any:
    return fake(grid={"batch_size": "64", "optimizer": ["sgd"]}, trials=16, **changes)


def seventh(**changes: Any) -> str:
    """The id of the eighth trial of the study; those of real trials end in anything."""
    (study,) = single_study(**changes).studies()
    return str(study.draw(0, 16)[7].id)


@pytest.fixture
def whole(tmp_path: Path) -> Any:
    sweep(single_study(), results=tmp_path / "whole", address="none", trainer=FakeTraining)
    return rows(tmp_path / "whole")


def rows(root: Path) -> Any:
    columns = ["status", "stop_reason", "steps_to_target", "last_miss", "steps_run"]
    return dataset.open(root).trials.set_index("trial").sort_index()[columns]


@pytest.mark.slow
@pytest.mark.parametrize("trainer", [Hangs, HangsInTurn])
def test_a_trial_that_hangs_is_recorded_and_the_others_train_on(
    trainer: type[Hangs], tmp_path: Path, whole: Any
) -> None:
    culprit = seventh()
    kind = type("One", (trainer,), {"culprit": culprit})
    did = sweep(single_study(), results=tmp_path / "runs", address="none", trainer=kind, pace=QUICK)
    assert did.complete
    assert did.failed == 1
    trained = rows(tmp_path / "runs")
    others = whole.index != culprit
    assert trained.loc[whole.index[others]].equals(whole[others])
    assert trained.loc[culprit, "stop_reason"] == "error"
    table = dataset.open(tmp_path / "runs").trials.set_index("trial")
    assert "hung: no progress for" in str(table.loc[culprit, "error"])
    assert "in stuck" in str(table.loc[culprit, "error"])
    assert len(table) == len(whole)
    assert not list((tmp_path / "runs").rglob("*.snapshot"))


def test_ctrl_c_cuts_a_hanging_trial_off(tmp_path: Path) -> None:
    sleeping = threading.Event()

    class Interrupts(Hangs):
        culprit = seventh()

        def stuck(self, trial: str) -> None:
            sleeping.set()
            super().stuck(trial)

    def interrupt() -> None:
        sleeping.wait(120)
        os.kill(os.getpid(), signal.SIGINT)

    pace = Pace(ask=0.02, renew=1.0, commit=0.0, snapshot=0.0, stop=0.2, leave=60.0)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Interrupted):
        sweep(
            single_study(), results=tmp_path / "runs", address="none", trainer=Interrupts, pace=pace
        )
    thread.join()


def test_a_signal_is_seen_while_the_main_thread_is_in_c() -> None:
    """Python's handlers run in the main thread, once it is back; another thread sees it before."""
    seen: list[object] = []

    def send() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        until = time.monotonic() + 60
        while not seen and time.monotonic() < until:
            seen.extend([stop.reason] if stop.reason else [])

    with Stop() as stop:
        previous = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        thread = threading.Thread(target=send)
        thread.start()
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
    assert seen == ["signal"]


def test_a_second_signal_still_interrupts_at_once() -> None:
    with Stop() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.reason == "signal"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
