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
from experiments.engines import joint
from experiments.engines.capture import captured_step
from experiments.engines.joint import JointMember
from experiments.execution.executors.in_process import InProcess, SharedGPUPool
from experiments.execution.signals import Interrupted
from experiments.execution.sweep import sweep
from experiments.execution.worker import Pace
from experiments.plan import Measurement, Outcome, Pack
from experiments.scheduling.events import Event, PackStarted
from experiments.training import joint_training
from experiments.training.clock import Clock
from experiments.training.joint_training import JointTraining
from experiments.training.pack_training import Training
from results.store import Store
from tests.problems import engine, study, trials

pytestmark = pytest.mark.usefixtures("one_thread", "recorded")
COLUMNS = ["trial", "status", "stop_reason", "steps_to_target", "steps_run", "engine"]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process trains as with a GPU."""
    monkeypatch.setattr(InProcess, "pool", lambda self, layout: SharedGPUPool(self.context, layout))


def _experiment(**changes: Any) -> Experiment:
    return load(
        {
            "name": "mixed",
            "workload": "digits-mlp",
            "grid": {"batch_size": "8, 16, 32, 64", "optimizer": ["momentum"]},
            "search": {"learning_rate": {"log": [0.01, 1.0]}},
            "precision": "float64",
            "trials": 6,
            "budget": "12 epochs",
            "target": "validation_error < 0.08",
            "keep": "off",
            "engine": "stacked",
            **changes,
        }
    )


def _run(root: Path, of: Experiment, **options: Any) -> pd.DataFrame:
    sweep(of, results=root, address="none", **options)
    return _table(root)


def _table(root: Path) -> pd.DataFrame:
    columns = [*COLUMNS, "batch_size"]
    return Store(root).trials()[columns].sort_values("trial").reset_index(drop=True)


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


@pytest.mark.usefixtures("shared")
def test_a_sweep_has_the_results_of_packs_one_after_the_other(
    tmp_path: Path, groups: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = _run(tmp_path / "together", _experiment())
    assert [8, 16, 32, 64] in groups
    assert threading.active_count() == 1 or not [
        thread for thread in threading.enumerate() if thread.name.startswith("pack ")
    ]
    groups.clear()
    monkeypatch.undo()
    apart = _run(tmp_path / "apart", _experiment())
    assert not groups
    assert (together.status == "COMPLETE").sum() > 12
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


@pytest.mark.usefixtures("shared", "groups")
def test_it_stops_and_goes_on(tmp_path: Path) -> None:
    """Whatever of the packs had ended is recorded, and the rest goes on from snapshots."""
    whole = _run(tmp_path / "whole", _experiment())
    pace = Pace(ask=0.05, renew=0.5, commit=0.2, snapshot=0.2)
    started: list[int] = []
    for evaluations in (30, 60, 90):
        _Interrupted.left = evaluations
        with pytest.raises(Interrupted):
            _run(tmp_path / "cut", _experiment(), trainer=_Interrupted, pace=pace)
    resumed = _run(
        tmp_path / "cut", _experiment(), pace=pace,
        observer=lambda event: started.append(event.step) if isinstance(event, PackStarted) else 0,
    )  # fmt: skip
    assert max(started) > 0
    pd.testing.assert_frame_equal(resumed, whole)


class _Breaks(Training):
    """The pack of batch size 16 raises in its third evaluation."""

    def __init__(self, pack: Pack, **how: Any) -> None:
        super().__init__(pack, **how)
        self.breaks = pack.study.batch_size == 16 and len(pack.trials) > 1
        self.evaluations = 0

    def run(
        self, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Measurement | Outcome]]:
        for events in super().run(should_stop):
            self.evaluations += bool(events)
            if self.breaks and self.evaluations == 3:
                raise ValueError("of batch size 16")
            yield events


@pytest.mark.usefixtures("shared", "groups")
def test_a_pack_that_fails_harms_no_other(tmp_path: Path) -> None:
    """Its trials train one by one after it, as everywhere."""
    events: list[Event] = []
    found = _run(tmp_path / "runs", _experiment(), trainer=_Breaks, observer=events.append)
    plain = _run(tmp_path / "plain", _experiment())
    pd.testing.assert_frame_equal(found, plain)


@pytest.mark.usefixtures("shared")
def test_a_failed_joint_step_is_taken_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = _run(tmp_path / "plain", _experiment())
    calls = []

    def advance(group: Sequence[JointMember], _: int) -> bool:
        calls.append(len(group))
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(joint, "advance", advance)
    found = _run(tmp_path / "runs", _experiment())
    pd.testing.assert_frame_equal(found, plain)
    assert 1 <= len(calls) <= 4  # a pack that has failed so tries it no more


@pytest.mark.usefixtures("shared")
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
