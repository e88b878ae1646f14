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

from results import claims as module
from results import processes
from results.claims import SILENT_SECONDS, Claim, Claims
from results.errors import ResultsError
from results.location import Location


def _age(root: Path, pack: str, seconds: float = SILENT_SECONDS + 1) -> None:
    past = time.time() - seconds
    os.utime(root / "claims" / f"{pack}.json", (past, past))


def _take(root: Path, pack: str = "p", trials: tuple[str, ...] = ("a", "b")) -> Claim | None:
    return Claims(root).take(pack, trials)


def test_a_pack_is_held_by_one(tmp_path: Path) -> None:
    claim = _take(tmp_path)
    assert claim is not None
    assert claim.held()
    assert _take(tmp_path) is None
    assert _take(tmp_path, "q", ("c",)) is not None
    claim.release()
    assert not claim.held()
    claim.release()
    assert _take(tmp_path) is not None


def test_a_trial_is_held_by_one_whatever_its_pack(tmp_path: Path) -> None:
    claim = _take(tmp_path)
    assert _take(tmp_path, "q", ("b", "c")) is None
    assert claim is not None
    claim.release()
    assert _take(tmp_path, "q", ("b", "c")) is not None


def test_a_claim_is_extended_by_what_nobody_holds(tmp_path: Path) -> None:
    claim, other = _take(tmp_path), _take(tmp_path, "q", ("c",))
    assert claim is not None
    assert other is not None
    assert not claim.extend(["d", "c"])  # all or none
    assert claim.extend(["d", "e"])
    assert not other.extend(["e"])
    assert _take(tmp_path, "r", ("d",)) is None
    claim.reduce(["d"])
    claim.renew({"e": (3, 0.5)}, force=True)
    assert other.extend(["d"])
    found = {held["pack"]: held["trials"] for held in Claims(tmp_path).live()}
    assert found == {"p": ["a", "b", "e"], "q": ["c", "d"]}
    _age(tmp_path, "q")
    assert _take(tmp_path, "q", ("c",)) is not None  # it slept
    assert not other.extend(["f"])


def test_what_a_claim_tells(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    driver = processes.identify(os.getppid())
    claim = claims.take("p", ["a"], processes=[driver], info={"experiment": "digits"})
    assert claim is not None
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


def test_renewing_is_throttled_and_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = _take(tmp_path)
    assert claim is not None
    assert claim.renew({"a": (1, None)})
    assert Claims(tmp_path).all()[0]["progress"] == {}
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.0)
    assert claim.renew({"a": (2, None)})
    assert Claims(tmp_path).all()[0]["progress"] == {"a": [2, None]}
    long = {f"trial-{at}": (10**9, 0.123456789) for at in range(200)}
    assert claim.renew(long)
    assert claim.renew({"a": (3, 0.5)})  # shorter again: nothing of the longer text is left
    assert Claims(tmp_path).all()[0]["progress"] == {"a": [3, 0.5]}


def test_two_minutes_of_silence_free_it_and_its_owner_finds_out(tmp_path: Path) -> None:
    sleeper = _take(tmp_path)
    assert sleeper is not None
    _age(tmp_path, "p", SILENT_SECONDS - 5)
    assert _take(tmp_path) is None
    _age(tmp_path, "p")
    assert sleeper.held()  # silent, but nobody took it: it may still commit
    taker = _take(tmp_path)
    assert taker is not None
    assert not sleeper.held()
    assert not sleeper.renew({"a": (9, 0.9)}, force=True)
    assert Claims(tmp_path).all()[0]["progress"] == {}  # it did not write over the taker's
    sleeper.release()
    assert taker.held()


def test_renewing_ends_the_silence(tmp_path: Path) -> None:
    claim = _take(tmp_path)
    assert claim is not None
    _age(tmp_path, "p")
    assert claim.renew({}, force=True)
    assert _take(tmp_path) is None


_HOLD = """
import sys, time
from results.claims import Claims
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


def test_a_broken_claim_is_no_claim(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "p.json").write_text("{half")
    assert Claims(tmp_path).all() == []
    assert _take(tmp_path) is not None


def written(**changes: Any) -> Any:
    """A claim as it is written, but for ``changes``; ``...`` leaves a key out."""
    content = {
        "pack": "p",
        "trials": ["a"],
        "token": "0",
        "holder": {"machine": "elsewhere", "pid": 7, "start": 5},
        "processes": [{"machine": "elsewhere", "pid": 8, "start": None, "role": "driver"}],
        "info": {"experiment": "e", "study": "s", "round": 0},
        "progress": {"a": [3, 0.5]},
        "time": 1e9,
        **changes,
    }
    return {key: value for key, value in content.items() if value is not ...}


MALFORMED = [
    *({key: ...} for key in written()),
    *({key: None} for key in written()),
    *({key: 7} for key in written() if key != "time"),
    {"pack": "q"},
    {"pack": "../../precious"},
    {"pack": "/etc/passwd"},
    {"trials": "abc"},
    {"trials": [1]},
    {"trials": {"a": 1}},
    {"holder": {}},
    {"holder": {"machine": "elsewhere", "pid": "7", "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": 7.5, "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": True, "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": 0, "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": -1, "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": 10**30, "start": 5}},
    {"holder": {"machine": "elsewhere", "pid": 7}},
    {"holder": {"machine": "elsewhere", "pid": 7, "start": "5"}},
    {"holder": {"machine": "elsewhere", "pid": 7, "start": float("nan")}},
    {"holder": {"machine": None, "pid": 7, "start": 5}},
    {"holder": {"machine": "\x1b[2J", "pid": 7, "start": 5}},
    {"holder": {"machine": "x" * 100_000, "pid": 7, "start": 5}},
    {"holder": [1, 2, 3]},
    {"processes": [None]},
    {"processes": [{"role": "driver"}]},
    {"processes": [{"machine": "elsewhere", "pid": 7, "start": 5, "role": 1}]},
    {"processes": {"machine": "elsewhere", "pid": 7, "start": 5}},
    {"info": []},
    {"info": {"study": ["s"]}},
    {"info": {"experiment": {"a": 1}}},
    {"info": {"more": [1]}},
    {"progress": []},
    {"progress": {"a": 3}},
    {"progress": {"a": [3]}},
    {"progress": {"a": [3, 0.5, 1]}},
    {"progress": {"a": ["3", 0.5]}},
    {"progress": {"a": [3, "0.5"]}},
    {"progress": {"a": [-3, 0.5]}},
    {"progress": {"a": [float("inf"), 0.5]}},
    {"time": "now"},
    {"time": float("nan")},
    {"time": float("inf")},
]
TEXTS = [
    b"",
    b"null",
    b"[]",
    b"7",
    b"NaN",
    b"\xff\xfe",
    b"[" * 200_000,
    b'{"a":' * 200_000,
    b'{"pack": ' + b"9" * 50_000 + b"}",
    b"\0" * 1000,
]


@pytest.mark.parametrize("change", MALFORMED, ids=lambda change: repr(change)[:60])
def test_a_malformed_claim_is_no_claim(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = tmp_path / "claims"
    folder.mkdir()
    (folder / "p.json").write_text(json.dumps(written()))
    assert [claim["pack"] for claim in Claims(tmp_path).all()] == ["p"]
    (folder / "p.json").write_text(json.dumps(written(**change)))
    _is_passed_over(tmp_path)


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text)[:20])
def test_a_file_that_is_no_json_is_no_claim(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "p.json").write_bytes(text)
    _is_passed_over(tmp_path)


def write_malformed(root: Path) -> None:
    """All of them at once."""
    (root / "claims").mkdir(exist_ok=True)
    for at, change in enumerate(MALFORMED):
        text = json.dumps(written(**{"pack": f"c{at}", **change}))
        (root / "claims" / f"c{at}.json").write_text(text)
    for at, data in enumerate(TEXTS):
        (root / "claims" / f"t{at}.json").write_bytes(data)


def _is_passed_over(root: Path) -> None:
    claims = Claims(root)
    other = _take(root, "q", ("c",))
    assert other is not None
    assert [claim["pack"] for claim in claims.all()] == ["q"]
    claims.clear()
    assert (root / "claims" / "p.json").exists()
    other.release()
    assert _take(root) is not None  # taken in its place


def test_a_huge_file_is_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "claims").mkdir()
    with (tmp_path / "claims" / "p.json").open("wb") as stream:
        stream.truncate(2**40)
    monkeypatch.setattr(Location, "read", lambda *_: pytest.fail("read"))
    assert Claims(tmp_path).all() == []


def test_a_metric_that_is_no_number_is_none(tmp_path: Path) -> None:
    claim = _take(tmp_path)
    assert claim is not None
    values = {"a": (3, float("nan")), "b": (4, float("-inf")), "c": (5, None), "d": (6, 0.25)}
    assert claim.renew(values, force=True)
    (found,) = Claims(tmp_path).live()
    assert found["progress"] == {"a": [3, None], "b": [4, None], "c": [5, None], "d": [6, 0.25]}


def test_clearing_deletes_nothing_that_a_claim_names(tmp_path: Path) -> None:
    root = tmp_path / "inner" / "runs"
    (root / "claims" / "deep").mkdir(parents=True)
    precious = [tmp_path / "precious.json", root / "p.json", root / "claims" / "deep" / "x.json"]
    for path in precious:
        path.write_text("{}")
    past = time.time() - SILENT_SECONDS - 1
    for at, pack in enumerate(("../../../precious", "../p", "deep/x", str(tmp_path / "precious"))):
        path = root / "claims" / f"c{at}.json"
        path.write_text(json.dumps(written(pack=pack)))
        os.utime(path, (past, past))
    free = root / "claims" / "p.json"
    free.write_text(json.dumps(written()))
    os.utime(free, (past, past))
    Claims(root).clear()
    assert not free.exists()
    assert all(path.exists() for path in precious)


def test_a_pack_of_no_plain_name_is_refused(tmp_path: Path) -> None:
    for pack in ("../p", "a/b", "", ".p", "p\n"):
        with pytest.raises(ResultsError, match="cannot name a file"):
            _take(tmp_path, pack)
    assert not list(tmp_path.rglob("*.json"))


def test_a_claim_of_a_day_to_come_is_free(tmp_path: Path) -> None:
    assert _take(tmp_path)
    _age(tmp_path, "p", -86400)
    assert _take(tmp_path) is not None


def test_claims_behind_a_link_are_not_cleared(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "claims").symlink_to(theirs)
    (theirs / "p.json").write_text(json.dumps(written()))
    _age(tmp_path / "runs", "p")
    claims = Claims(tmp_path / "runs")
    assert [claim["free"] for claim in claims.all()] == [True]
    claims.clear()
    assert (theirs / "p.json").exists()


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


@pytest.mark.parametrize("stale", [False, True])
def test_many_reach_for_one_and_one_gets_it(tmp_path: Path, stale: bool) -> None:
    rounds, racers = 30, 4
    if stale:
        for at in range(rounds):
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


def test_an_object_store_tells_but_does_not_divide(bucket: Location) -> None:
    claims = Claims(bucket)
    claim = claims.take("p", ["a"])
    assert claim is not None
    assert claims.take("p", ["a"]) is not None
    assert claim.renew({"a": (5, 0.5)}, force=True)
    assert claims.live()[0]["progress"] == {"a": [5, 0.5]}
    claim.release()
    assert claims.all() == []
