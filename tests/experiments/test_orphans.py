"""What a killed sweep left running is ended; what a claim merely names is not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.execution.orphans import end_orphans
from experiments.execution.sweep import sweep
from results.run_state import processes
from results.run_state.processes import MARK
from results.store import Store
from tests.experiments.fakes import FakeTraining
from tests.experiments.test_sweep import experiment
from tests.results.synthetic import claimed

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/environ"), reason="the system does not show it"
)


@pytest.fixture
def driver() -> dict[str, Any]:
    """A driver that is gone."""
    with subprocess.Popen(["sleep", "600"]) as child:
        process = processes.identify(child.pid)
        child.kill()
    return {**process, "role": "driver"}


def sleeping(**environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], env={**os.environ, **environment})


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any sweep."""
    with sleeping() as child:
        yield child
        child.kill()


def claim(root: Path, holder: Any, *others: Any) -> Path:
    """The claim of a pack, as anybody who may write into the folder may write it."""
    store = Store(root)
    claimed(store.location, "pack", ["a"], processes=others)
    path = root / "claims" / "pack.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "holder": holder}))
    return path


def test_a_process_that_a_claim_names_is_not_ended(
    tmp_path: Path, driver: dict[str, Any], sleeper: subprocess.Popen[bytes]
) -> None:
    """With the right machine, number and start, as worker and as Ray."""
    named = processes.identify(sleeper.pid)
    path = claim(tmp_path / "runs", named, driver, {**named, "role": "raylet"})
    assert end_orphans(Store(tmp_path / "runs")) == 0
    assert sleeper.poll() is None
    assert path.exists()  # it falls free by silence
    past = path.stat().st_mtime - 300
    os.utime(path, (past, past))
    did = sweep(experiment(), results=tmp_path / "runs", address="none", trainer=FakeTraining)
    assert did.complete
    assert sleeper.poll() is None
    assert not path.exists()


def test_what_a_dead_driver_started_is_ended(tmp_path: Path, driver: dict[str, Any]) -> None:
    mark = f"{driver['machine']}/{driver['pid']}/{driver['start']}"
    with sleeping(**{MARK: mark}) as worker, sleeping(**{MARK: mark}) as raylet:
        path = claim(
            tmp_path / "runs",
            processes.identify(worker.pid),
            driver,
            {**processes.identify(raylet.pid), "role": "raylet"},
        )
        assert end_orphans(Store(tmp_path / "runs")) == 2
        assert worker.wait(10) < 0
        assert raylet.wait(10) < 0
    assert not path.exists()


def test_what_a_driver_that_lives_started_is_not(tmp_path: Path, driver: dict[str, Any]) -> None:
    """Also where a claim says that another driver, which is gone, has started it."""
    me = processes.identify()
    with processes.leaving_mark():
        worker = sleeping()
    with worker:
        claim(tmp_path / "runs", processes.identify(worker.pid), driver, {**me, "role": "driver"})
        assert end_orphans(Store(tmp_path / "runs")) == 0
        assert worker.poll() is None
        worker.kill()
