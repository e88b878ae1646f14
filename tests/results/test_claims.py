"""Claims: exactly one holder, however many reach for a pack, and none that outlives its worker."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from results.errors import ResultsError
from results.run_state import claims as module
from results.run_state import processes
from results.run_state.claims import SILENT_SECONDS, Claim, Claims
from results.storage.location import Location
from tests.results.synthetic import claimed


def _age(root: Path, pack: str, seconds: float = SILENT_SECONDS + 1) -> None:
    past = time.time() - seconds
    os.utime(root / "claims" / f"{pack}.json", (past, past))


def _take(
    root: Path | Location, pack: str = "p", trials: tuple[str, ...] = ("a", "b")
) -> Claim | None:
    return Claims(root).take(pack, trials)


@pytest.fixture(params=["folder", "object store"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Location:
    """The laws are the same in both."""
    bucket: Location = request.getfixturevalue("bucket")
    return tmp_path if request.param == "folder" else bucket


def test_a_pack_is_held_by_one(root: Path | Location) -> None:
    claim = claimed(root)
    assert claim.held()
    assert _take(root) is None
    assert _take(root, "q", ("c",)) is not None
    claim.release()
    assert not claim.held()
    claim.release()
    assert _take(root) is not None


def test_a_trial_is_held_by_one_whatever_its_pack(root: Path | Location) -> None:
    claim = claimed(root)
    assert _take(root, "q", ("b", "c")) is None
    claim.release()
    assert _take(root, "q", ("b", "c")) is not None


def test_a_claim_is_extended_by_what_nobody_holds(root: Path | Location) -> None:
    claim, other = claimed(root), claimed(root, "q", ("c",))
    assert not claim.extend(["d", "c"])  # all or none
    assert claim.extend(["d", "e"])
    assert not other.extend(["e"])
    assert _take(root, "r", ("d",)) is None
    claim.reduce(["d"])
    claim.renew({"e": (3, 0.5)}, force=True)
    assert other.extend(["d"])
    found = {held["pack"]: held["trials"] for held in Claims(root).live()}
    assert found == {"p": ["a", "b", "e"], "q": ["c", "d"]}


def test_a_claim_that_slept_is_extended_by_nothing(tmp_path: Path) -> None:
    other = claimed(tmp_path, "q", ("c",))
    _age(tmp_path, "q")
    assert _take(tmp_path, "q", ("c",)) is not None  # it slept
    assert not other.extend(["f"])


def test_what_a_claim_tells(root: Path | Location) -> None:
    claims = Claims(root)
    driver = processes.identify(os.getppid())
    claim = claimed(root, "p", ["a"], processes=[driver], info={"experiment": "digits"})
    assert claim.renew({"a": (120, 0.25)}, force=True)
    (found,) = claims.live()
    assert found["pack"] == "p"
    assert found["trials"] == ["a"]
    assert found["holder"] == processes.identify()
    assert found["processes"] == [driver]
    assert found["info"] == {"experiment": "digits"}
    assert found["progress"] == {"a": [120, 0.25]}
    assert not found["free"]
    assert found["silent"] < 60


def test_renewing_is_throttled_and_forced(
    root: Path | Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claimed(root)
    assert claim.renew({"a": (1, None)})
    assert Claims(root).all()[0]["progress"] == {}
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.0)
    assert claim.renew({"a": (2, None)})
    assert Claims(root).all()[0]["progress"] == {"a": [2, None]}
    long = {f"trial-{at}": (10**9, 0.123456789) for at in range(200)}
    assert claim.renew(long)
    assert claim.renew({"a": (3, 0.5)})  # shorter again: nothing of the longer text is left
    assert Claims(root).all()[0]["progress"] == {"a": [3, 0.5]}


def test_two_minutes_of_silence_free_it_and_its_owner_finds_out(tmp_path: Path) -> None:
    sleeper = claimed(tmp_path)
    _age(tmp_path, "p", SILENT_SECONDS - 5)
    assert _take(tmp_path) is None
    _age(tmp_path, "p")
    assert sleeper.held()  # silent, but nobody took it: it may still commit
    taker = claimed(tmp_path)
    assert not sleeper.held()
    assert not sleeper.renew({"a": (9, 0.9)}, force=True)
    assert Claims(tmp_path).all()[0]["progress"] == {}  # it did not write over the taker's
    sleeper.release()
    assert taker.held()


def test_renewing_ends_the_silence(tmp_path: Path) -> None:
    claim = claimed(tmp_path)
    _age(tmp_path, "p")
    assert claim.renew({}, force=True)
    assert _take(tmp_path) is None


_HOLD = """
import sys, time
from results.run_state.claims import Claims
assert Claims(sys.argv[1]).take("p", ["a"])
print("held", flush=True)
time.sleep(600)
"""


def test_a_killed_worker_frees_its_claim_at_once(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child:
        assert child.stdout.readline() == "held\n"
        assert _take(tmp_path) is None
        child.send_signal(signal.SIGKILL)
        # Not yet waited for, so perhaps a zombie: gone all the same.
        while processes.alive(Claims(tmp_path).all()[0]["holder"]):
            time.sleep(0.005)
        assert _take(tmp_path) is not None


def _edit(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = root / "claims" / "p.json"
    content = json.loads(path.read_text())
    change(content["holder"])
    path.write_text(json.dumps(content))


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="start times are not told here")
def test_another_process_with_the_number_of_a_dead_one(tmp_path: Path) -> None:
    assert _take(tmp_path)
    _edit(tmp_path, lambda holder: holder.update(start=holder["start"] - 1))
    assert _take(tmp_path) is not None


def test_of_another_machine_only_the_silence_tells(tmp_path: Path) -> None:
    assert _take(tmp_path)
    _edit(tmp_path, lambda holder: holder.update(machine="elsewhere", pid=2**22 + 1))
    assert _take(tmp_path) is None
    _age(tmp_path, "p")
    assert _take(tmp_path) is not None


def test_clear_removes_what_is_free(tmp_path: Path) -> None:
    assert _take(tmp_path)
    assert _take(tmp_path, "q", ("c",))
    _age(tmp_path, "p")
    claims = Claims(tmp_path)
    assert [claim["free"] for claim in claims.all()] == [True, False]
    claims.clear()
    assert [claim["pack"] for claim in claims.all()] == ["q"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "claims").write_text("a file in its place")
    with pytest.raises(ResultsError, match="cannot write"):
        _take(tmp_path)


def _race(root: str, rounds: int, start: Barrier, sink: Connection) -> None:
    claims = Claims(root)
    won = []
    for at in range(rounds):
        start.wait(180)
        won.append(claims.take(f"p{at}", [f"t{at}"]) is not None)
        start.wait(180)  # nobody ends, and so frees a claim, before all have tried
    sink.send(won)
    sink.close()


@pytest.mark.slow
def test_many_reach_for_one_and_one_gets_it(tmp_path: Path) -> None:
    """Every second pack has a claim that has been silent for too long; the others have none."""
    rounds, racers = 60, 4
    for at in range(0, rounds, 2):
        assert Claims(tmp_path).take(f"p{at}", [f"t{at}"])
        _age(tmp_path, f"p{at}")
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(racers)
    pipes = [context.Pipe(duplex=False) for _ in range(racers)]
    children = [
        context.Process(target=_race, args=(str(tmp_path), rounds, start, sink))
        for _, sink in pipes
    ]
    for child in children:
        child.start()
    won = [source.recv() for source, _ in pipes]
    for child in children:
        child.join()
    assert [sum(each) for each in zip(*won, strict=True)] == [1] * rounds


def test_the_worker_that_trains_is_named_by_another_that_writes(tmp_path: Path) -> None:
    """Its death frees the claim at once, although the writer lives."""
    with subprocess.Popen(["sleep", "600"]) as worker:
        holder = processes.identify(worker.pid)
        claimed(tmp_path, "p", ["a"], holder=holder, info={"node": "n1"})
        (claim,) = Claims(tmp_path).live()
        assert (claim["holder"], claim["info"]["node"]) == (holder, "n1")
        worker.kill()
    assert Claims(tmp_path).live() == []
    assert _take(tmp_path) is not None


def test_a_sweep_abandons_its_own_claims_alone(tmp_path: Path) -> None:
    """As soon as it learns of a death elsewhere, which nobody here can see."""
    elsewhere = {**processes.identify(), "machine": "another"}
    driver = {**processes.identify(), "role": "driver"}
    taken = Claims(tmp_path).take("p", ["a"], holder=elsewhere, processes=[driver])
    of_another = {**driver, "start": 1}
    assert taken is not None
    assert Claims(tmp_path).take("q", ["b"], holder=elsewhere, processes=[of_another])
    assert _take(tmp_path, "p", ("a",)) is None
    assert Claims(tmp_path).abandon("p")
    assert not Claims(tmp_path).abandon("q")
    assert not Claims(tmp_path).abandon("none")
    assert not taken.held()  # it may live after all: it does not commit
    assert _take(tmp_path, "p", ("a",)) is not None
    assert _take(tmp_path, "q", ("b",)) is None
