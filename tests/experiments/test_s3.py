"""Sweeps with results in a real S3 store: several drivers, a store that is away, resuming."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import results as dataset
from results.run_state.claims import Claims
from results.storage.location import Location
from results.storage.objects import ObjectStore
from results.store import Store
from tests import s3_server
from tests.experiments import sweeping
from tests.experiments.undisturbed import PATIENCE, undisturbed
from tests.forked import SERVER
from tests.results import synthetic

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(s3_server.program() is None, reason="needs SeaweedFS (weed)"),
]

COLUMNS = ["study", "batch_size", "status", "stop_reason", "steps_to_target", "last_miss"]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3_server.server(tmp_path_factory.mktemp("s3") / "server") as port:
        yield port


def start(uri: str, log: Path, kind: str, **environment: str) -> Any:
    """A sweep in a process of its own."""
    log.touch()
    given = {"FAKE_SECONDS": "0", **environment}
    process = SERVER.Process(target=sweeping.alone, args=(uri, "none", kind, str(log), given))
    process.start()
    return process


def assert_whole(uri: str, expected: pd.DataFrame) -> None:
    """Every trial once, equal to the undisturbed one's; no claim and no lock is left."""
    rows = dataset.open(uri).trials.set_index("trial").sort_index()[COLUMNS]
    pd.testing.assert_frame_equal(rows, expected)
    written = Store(uri).location
    counted = dataset.open(uri).trial_rows
    assert len(counted) == len(expected)
    assert Claims(uri).all() == []
    assert written.files("claims", hidden=True) == []


def test_four_drivers_divide_the_work(port: int, tmp_path: Path) -> None:
    """None dies, and each trial is committed by one of them, once. No trial ends before two drivers
    have a pack.

    What a driver has trained counts when it is committed: a pack whose claim is lost, as after two
    minutes in which the machine gave its process no time, is trained by another one too.
    """
    expected = undisturbed(tmp_path / "alone", "500")
    uri = s3_server.address(port, "four")
    logs = [tmp_path / f"{n}.log" for n in range(4)]
    gate = tmp_path / "gate"
    processes = [start(uri, log, "500", FAKE_GATE=str(gate)) for log in logs]
    end = time.monotonic() + PATIENCE
    while sum("Begun(" in log.read_text() for log in logs) < 2:
        assert all(process.is_alive() for process in processes), [log.read_text() for log in logs]
        assert time.monotonic() < end
        time.sleep(0.05)
    gate.touch()
    for process, log in zip(processes, logs, strict=True):
        process.join(PATIENCE)
        assert process.exitcode == 0, log.read_text()
    assert_whole(uri, expected)
    trained = [int(re.findall(r"\btrained=(\d+)", log.read_text())[-1]) for log in logs]
    assert sum(trained) == len(expected), trained
    assert sum(count > 0 for count in trained) > 1, trained


def test_a_store_that_is_away_for_ten_seconds_stops_nothing(port: int, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "alone")
    door = s3_server.Door(port)
    uri, log = s3_server.address(door.port, "away"), tmp_path / "log"
    process = start(uri, log, "many", FAKE_SECONDS="0.005")
    end = time.monotonic() + PATIENCE
    while "Ended(" not in log.read_text():
        assert process.is_alive(), log.read_text()
        assert time.monotonic() < end
        time.sleep(0.05)
    door.shut()
    time.sleep(10)
    assert process.is_alive(), log.read_text()
    door.reopen()
    process.join(PATIENCE)
    assert process.exitcode == 0, log.read_text()
    assert_whole(s3_server.address(port, "away"), expected)


def test_a_killed_driver_is_continued_elsewhere(port: int, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "alone")
    uri, log = s3_server.address(port, "killed"), tmp_path / "log"
    process = start(uri, log, "many", FAKE_SECONDS="0.005")
    end = time.monotonic() + PATIENCE
    while log.read_text().count(" run=None") < 20:
        assert process.is_alive(), log.read_text()
        assert time.monotonic() < end
        time.sleep(0.05)
    process.kill()
    process.join()
    again = start(uri, tmp_path / "again", "many")
    again.join(PATIENCE)
    assert again.exitcode == 0, (tmp_path / "again").read_text()
    assert_whole(uri, expected)


def test_a_poll_takes_two_listings_and_one_request_for_each_new_file(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = s3_server.address(port, "polled")
    store, other = Store(uri), Store(uri)
    store.add_studies([synthetic.study_row("digits-mlp", "sgd", 8)])
    for seed in range(100):
        synthetic.commit(store, [synthetic.trial_row("digits-mlp", "sgd", 8, seed)])
    assert len(other.trials(columns=["steps_to_target"])) == 100
    requests: list[str] = []
    for name in ("list", "head", "read", "write", "create", "replace"):
        method = getattr(ObjectStore, name)

        def counted(*given: Any, method: Any = method, name: str = name) -> Any:
            requests.append(name)
            return method(*given)

        monkeypatch.setattr(ObjectStore, name, counted)
    assert len(other.trials(columns=["steps_to_target"])) == 100
    assert requests == ["list", "list"]
    for seed in range(100, 103):
        synthetic.commit(store, [synthetic.trial_row("digits-mlp", "sgd", 8, seed)])
    requests.clear()
    assert len(other.trials(columns=["steps_to_target"])) == 103
    assert sorted(requests) == ["list", "list", "read", "read", "read"]
    assert isinstance(Location(uri).store, ObjectStore)
