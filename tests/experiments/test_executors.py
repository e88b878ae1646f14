"""Executors: found by an address, one protocol for all, and one of a user's file."""

from __future__ import annotations

import pickle
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import results as dataset
from batchscale.api import listing
from experiments.errors import ExperimentError
from experiments.execution import executors, signals
from experiments.execution.executors import local_ray
from experiments.execution.executors.base import Executor, ExecutorContext
from experiments.execution.executors.local_ray import LocalCluster
from experiments.execution.ray import start
from experiments.execution.ray.searcher import NotWaiting
from experiments.execution.signals import Stop
from experiments.execution.sweep import sweep
from experiments.plan import Layout
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.messages import Event, Stage
from results.storage.location import Location
from results.store import Store
from tests.experiments.fakes import FakeTraining
from tests.experiments.sweeping import PACE, fake
from tests.experiments.test_dispatch import state

OF_A_USER = '''
"""Two workers, threads of this process."""

import time
from concurrent.futures import ThreadPoolExecutor

from experiments.execution.executors.base import Executor
from experiments.execution.ledger import Ledger
from experiments.execution.worker import run_pack
from experiments.scheduling.messages import Channel


class Threads(Executor):
    """Threads of this process."""

    slots, device = 2, "cpu"

    def pool(self, layout):
        return self

    def run(self, dispatcher):
        def work(_):
            ledger = Ledger(self.context.location)
            channel = Channel(send=dispatcher.receive, ask=dispatcher.assigned)
            while (answer := dispatcher.next()) is not None:
                if answer == "wait":
                    time.sleep(0.01)
                else:
                    run_pack(answer, ledger, channel, trainer=self.context.trainer)

        with ThreadPoolExecutor(self.slots) as threads:
            list(threads.map(work, range(self.slots)))


not_one = 3
'''


def context(root: Path) -> ExecutorContext:
    return ExecutorContext(
        location=Location(str(root)),
        layouts=[Layout()],
        base=None,
        specs=[],
        files=[],
        trainer=FakeTraining,
        pace=PACE,
        num_cpus=1,
        missing=1,
    )


@pytest.fixture
def threads(tmp_path: Path) -> str:
    file = tmp_path / "threads.py"
    file.write_text(OF_A_USER)
    return f"{file}:Threads"


NEED_RAY = {"auto", "HOST:PORT"}
ALL = [
    pytest.param(name, marks=[pytest.mark.ray, pytest.mark.slow] if name in NEED_RAY else [])
    for name in [*executors.names(), "user's"]
]


@pytest.mark.parametrize("name", ALL)
def test_it_trains_every_pack_and_ends(
    name: str, tmp_path: Path, threads: str, request: pytest.FixtureRequest
) -> None:
    address = {"user's": threads}.get(name, name)
    if name == "HOST:PORT":
        address = request.getfixturevalue("ray_address")
    states = [state("a"), state("b", batch_size=128)]
    said: list[str] = []
    executor = executors.find(address)(address, context(tmp_path / "runs"))
    with executor, executor.connect(said.append) as pools:
        assert executor.ready
        (pool,) = pools.values()
        assert pool.slots >= 1
        assert pool.device in ("cpu", "cuda")
        dispatcher = Dispatcher(
            states, slots=pool.slots, device=pool.device, observer=lambda _: None
        )
        pool.run(dispatcher)
    assert said
    assert dispatcher.finished
    assert dispatcher.error is None
    assert all(study.wave() is None for study in states)


@pytest.mark.parametrize("name", ["none", "user's"])
def test_a_stop_before_the_first_pack_trains_nothing(
    name: str, tmp_path: Path, threads: str
) -> None:
    address = {"user's": threads}.get(name, name)
    stop = Stop(seconds=0)
    dispatcher = Dispatcher([state("a")], observer=lambda _: None, stop=lambda: bool(stop))
    executor = executors.find(address)(address, context(tmp_path / "runs"))
    with executor, executor.connect(lambda _: None) as pools:
        (pool,) = pools.values()
        pool.run(dispatcher)
    assert dispatcher.trained == 0


@pytest.mark.parametrize(
    ("changes", "device", "alone"),
    [
        ({}, "cpu", True),
        ({"missing": 10_000}, "cpu", False),
        ({"layouts": [Layout(), Layout(workers=2)]}, "cpu", False),
        ({"callbacks": ["of Tune's"]}, "cpu", False),
        ({}, None, False),
    ],
)
def test_few_trials_do_not_start_a_ray(
    changes: dict[str, Any],
    device: str | None,
    alone: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unless they take longer than its start, need its workers or its callbacks, or one runs."""
    tried = threading.Event()
    monkeypatch.setattr(LocalCluster, "expected_device", lambda *_: device)
    monkeypatch.setattr(start, "_start", lambda *_: tried.set())
    monkeypatch.setattr(start, "_find", lambda: (None, None))
    with LocalCluster("auto", replace(context(tmp_path), **changes)) as executor:
        if not alone:
            assert tried.wait(60)
    assert executor.local is not None
    executor.local.end()
    assert tried.is_set() == (not alone)
    assert executor.ready


def test_whoever_needs_a_ray_does_not_wait_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_start", lambda *_: None)
    monkeypatch.setattr(start, "_find", lambda: (None, None))
    local = start.LocalRay(after=3600)
    assert not local.decided
    local.wait()
    assert local.ours
    local.end()


def test_when_the_time_is_over_no_ray_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = threading.Event()
    monkeypatch.setattr(LocalCluster, "until_ready", lambda _: {})
    monkeypatch.setattr(start, "_find", lambda: (None, None))
    monkeypatch.setattr(start, "_start", lambda *_: starts.wait(60))
    given = replace(context(tmp_path), over=lambda: True)
    with LocalCluster("auto", given) as executor, executor.connect(lambda _: None) as pools:
        assert pools == {}
        assert not executor.ready
    starts.set()
    assert executor.local is not None
    executor.local.end()


def test_the_time_of_a_sweep_begins_before_it_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is trained where planning takes all of it, and the sweep is not complete."""
    now = time.monotonic
    late = [0.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now() + late[0])

    def observe(event: Event) -> None:
        late[0] = 3600.0 if isinstance(event, Stage) else late[0]

    did = sweep(
        fake(), results=tmp_path / "runs", address="none", trainer=FakeTraining, pace=PACE,
        seconds=1800, observer=observe,
    )  # fmt: skip
    assert (did.trained, did.complete) == (0, False)


def test_a_tuner_none_of_whose_packs_has_begun_is_ended() -> None:
    ends = NotWaiting(lambda: True)
    assert ends.stop_all()
    assert not ends("trial", {})
    assert not NotWaiting(lambda: False).stop_all()
    pickle.dumps(ends)  # Tune saves it


def test_what_is_not_in_the_dataset_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a sweep complete whose rows are gone."""
    commit = Store.commit
    lost: list[str] = []

    def forgetful(self: Store, experiment: str, **rows: Any) -> str | None:
        if not lost:
            lost.extend(row["trial"] for row in rows["trials"])
            return "never-written"
        return commit(self, experiment, **rows)

    monkeypatch.setattr(Store, "commit", forgetful)
    did = sweep(fake(), results=tmp_path / "runs", address="none", trainer=FakeTraining, pace=PACE)
    assert lost
    assert did.trials == len(dataset.open(tmp_path / "runs").trials)
    assert not did.complete


def test_a_small_sweep_needs_no_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start.LocalRay, "_find_or_start", pytest.fail)
    monkeypatch.setattr(local_ray, "_ALONE_SECONDS", 3600)
    monkeypatch.setattr(LocalCluster, "expected_device", lambda *_: "cpu")
    did = sweep(fake(), results=tmp_path / "runs", address="auto", trainer=FakeTraining, pace=PACE)
    assert did.complete


def test_without_ray_nothing_calls_its_callbacks(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="callbacks are Ray Tune's"):
        sweep(fake(), results=tmp_path / "runs", address="none", callbacks=["of Tune's"])
    assert not (tmp_path / "runs").exists()


def test_each_registered_one_is_listed_with_a_line() -> None:
    assert {"none", "auto", "HOST:PORT"} <= executors.names().keys()
    assert listing("executors") == executors.names()
    assert all(executors.names().values())


@pytest.mark.parametrize(
    ("address", "name"),
    [("none", "none"), ("auto", "auto"), ("auto://here", "auto"), ("10.0.0.1:6379", "HOST:PORT"),
     ("ray://head:10001", "HOST:PORT"), ("other", "HOST:PORT")],
)  # fmt: skip
def test_an_address_names_one(address: str, name: str) -> None:
    assert executors.find(address).name == name


def test_a_packaged_one_is_one_file_and_a_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = executors.names()
    (tmp_path / "slurm.py").write_text(
        OF_A_USER.replace("    slots,", '    name = "slurm"\n    slots,')
    )
    monkeypatch.setattr(executors, "__path__", [*executors.__path__, str(tmp_path)])
    monkeypatch.delitem(vars(executors.EXECUTORS), "packaged")
    assert executors.names() == {**before, "slurm": "Threads of this process."}
    did = sweep(fake(), results=tmp_path / "runs", address="slurm://queue", trainer=FakeTraining)
    assert did.complete
    monkeypatch.setitem(vars(executors.EXECUTORS), "packaged", {})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no.py:Threads", "no file 'no.py' in "),
        ("threads.py:not_one", r"is not a class of experiments\.execution\.executors"),
        ("threads.py:Thread", "has no class 'Thread'"),
    ],
)
@pytest.mark.usefixtures("threads")
def test_what_is_no_executor(
    spec: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExperimentError, match=message):
        executors.find(spec)


def test_what_has_no_pool_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError), Executor("x", context(tmp_path)).connect(print):
        pass
