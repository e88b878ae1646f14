"""Sweeps that train several packs at once in one process: the results of one pack after another."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from experiments.config.compile import Experiment, load
from experiments.engines.capture import captured_step
from experiments.execution.executors import in_process
from experiments.execution.signals import Interrupted
from experiments.execution.sweep import sweep
from experiments.execution.worker import Pace
from experiments.joint import groups as joint
from experiments.joint import process
from experiments.joint import training as joint_training
from experiments.joint.groups import JointMember
from experiments.joint.training import JointTraining
from experiments.plan import Measurement, Outcome
from experiments.scheduling.events import Event, Note, PackStarted
from experiments.training.clock import Clock
from experiments.training.pack_training import Training
from results.store import Store
from tests.problems import engine, study, trials

pytestmark = pytest.mark.usefixtures("one_thread", "recorded")
COLUMNS = ["trial", "status", "stop_reason", "steps_to_target", "steps_run", "engine"]


def _experiment(**changes: Any) -> Experiment:
    return load(
        {
            "name": "mixed",
            "workload": "digits-mlp",
            "grid": {"batch_size": "16, 32, 64", "optimizer": ["momentum"]},
            "search": {"learning_rate": {"log": [0.01, 1.0]}},
            "precision": "float64",
            "trials": 4,
            "budget": "8 epochs",
            "target": "validation_error < 0.1",
            "keep": "off",
            "engine": "stacked",
            **changes,
        }
    )


def _run(root: Path, of: Experiment, **options: Any) -> pd.DataFrame:
    pace = Pace(ask=0.05, renew=0.5, commit=0.2, snapshot=0.2)
    sweep(of, results=root, address="none", **{"pace": pace, **options})
    return _table(root)


def _table(root: Path) -> pd.DataFrame:
    columns = [*COLUMNS, "batch_size"]
    return Store(root).trials()[columns].sort_values("trial").reset_index(drop=True)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs are so short here that others would come too late."""
    monkeypatch.setattr(process, "_POLL_SECONDS", 0.02)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The batch sizes of each group that took steps jointly."""
    seen: list[list[int]] = []
    real = joint.advance

    def advance(group: Sequence[JointMember], steps: int) -> bool:
        taken = real(group, steps)
        if taken:
            seen.append([member.size for member in group])
        return taken

    monkeypatch.setattr(joint, "advance", advance)
    return seen


@pytest.mark.slow
def test_a_sweep_has_the_results_of_packs_one_after_the_other(
    tmp_path: Path, groups: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = _run(tmp_path / "together", _experiment())
    assert max(len(group) for group in groups) >= 2
    assert threading.active_count() == 1 or not [
        thread for thread in threading.enumerate() if thread.name.startswith("pack ")
    ]
    groups.clear()
    monkeypatch.setattr(in_process, "is_shared", lambda _: False)
    apart = _run(tmp_path / "apart", _experiment())
    assert not groups
    assert (together.status == "COMPLETE").sum() > 6
    pd.testing.assert_frame_equal(together, apart)


class _Interrupted(Training):
    """Interrupts the sweep after some evaluations of all packs together."""

    left = 0

    def run(
        self, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Measurement | Outcome]]:
        for events in super().run(should_stop):
            yield events
            _Interrupted.left -= 1
            if _Interrupted.left == 0:
                os.kill(os.getpid(), signal.SIGINT)
            while _Interrupted.left <= 0 and not should_stop():
                time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.usefixtures("groups")
def test_it_stops_and_goes_on(tmp_path: Path) -> None:
    """Whatever of the packs had ended is recorded, and the rest goes on from snapshots."""
    whole = _run(tmp_path / "whole", _experiment())
    started: list[int] = []
    for evaluations in (20, 40, 60):
        _Interrupted.left = evaluations
        with pytest.raises(Interrupted):
            _run(tmp_path / "cut", _experiment(), trainer=_Interrupted)
    resumed = _run(
        tmp_path / "cut", _experiment(),
        observer=lambda event: started.append(event.step) if isinstance(event, PackStarted) else 0,
    )  # fmt: skip
    assert max(started) > 0
    pd.testing.assert_frame_equal(resumed, whole)


class _Breaks(Training):
    """The pack of batch size 16 raises in its fortieth evaluation, once."""

    left = 40

    def run(
        self, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Measurement | Outcome]]:
        for events in super().run(should_stop):
            if self.pack.study.batch_size == 16:
                _Breaks.left -= bool(events)
                if events and _Breaks.left == 0:
                    raise ValueError("of batch size 16")
            yield events


@pytest.mark.slow
@pytest.mark.usefixtures("groups")
def test_a_pack_that_fails_harms_no_other(tmp_path: Path) -> None:
    """Its trials go on in halves after it, as everywhere."""
    _Breaks.left = 40
    notes: list[Event] = []
    found = _run(tmp_path / "runs", _experiment(), trainer=_Breaks, observer=notes.append)
    assert any("of batch size 16" in note.text for note in notes if isinstance(note, Note))
    plain = _run(tmp_path / "plain", _experiment())
    pd.testing.assert_frame_equal(found, plain)


@pytest.mark.slow
def test_a_failed_joint_step_is_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = _run(tmp_path / "plain", _experiment())
    calls: list[int] = []

    def advance(group: Sequence[JointMember], _: int) -> bool:
        calls.append(len(group))
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(joint, "advance", advance)
    found = _run(tmp_path / "runs", _experiment())
    pd.testing.assert_frame_equal(found, plain)
    assert 1 <= len(calls) <= 4  # a pack that has failed so tries it no more


def test_packs_that_are_large_train_one_after_the_other(
    tmp_path: Path, groups: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint, "EXAMPLES", 10)
    most: list[int] = []
    real = JointTraining._take_jointly

    def take(self: JointTraining) -> None:
        most.append(len(self._waiting))
        real(self)

    monkeypatch.setattr(JointTraining, "_take_jointly", take)
    _run(tmp_path / "runs", _experiment(trials=3, budget="2 epochs"))
    assert groups == []
    assert set(most) == {1}


def test_seconds_of_others_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two packs that cannot be joint is timed by its own steps."""
    monkeypatch.delitem(captured_step.RECORDERS, "cpu")
    now = [0.0]
    monkeypatch.setattr(joint_training.time, "perf_counter", lambda: now[0])
    together, clocks = JointTraining(), [Clock(), Clock()]
    members = []
    for size, seconds in ((8, 1.0), (16, 10.0)):
        of = study(workload="digits-mlp", batch_size=size)
        member = JointMember(engine("stacked", of, trials(of, 2)))

        def advance(steps: int, seconds: float = seconds) -> None:
            now[0] += steps * seconds

        monkeypatch.setattr(member.engine, "advance", advance)
        members.append(member)

    def train(member: JointMember, clock: Clock) -> None:
        with together.turns():
            for _ in range(3):
                with clock.timed("train", torch.device("cpu")):
                    together.advance(member, clock, 4)

    threads = [
        threading.Thread(target=train, args=each) for each in zip(members, clocks, strict=True)
    ]
    together.enter()
    together.enter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [clock.train for clock in clocks] == pytest.approx([12.0, 120.0])
