"""The actor that writes for workers elsewhere: each claim is of the worker that took it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from results.run_state import processes
from results.run_state.claims import Claims
from results.storage.location import Location

pytest.importorskip("ray")

from experiments.execution.ledger import Ledger
from experiments.execution.ray.mailbox import Mailbox, Writer
from tests.experiments.test_worker import assignment
from tests.results.synthetic import claimed

DRIVER = {**processes.identify(), "role": "driver"}
ELSEWHERE = {**processes.identify(), "machine": "another"}


def take(writer: Writer, worker: str) -> Any:
    info = {"study": "study", "node": worker}
    return writer.call(worker, "take", "pack", ["a"], info, {}, holder=ELSEWHERE)


def test_a_worker_that_was_declared_dead_does_not_write(tmp_path: Path) -> None:
    writer = Writer(Location(str(tmp_path)), [DRIVER])
    assert take(writer, "one")
    (claim,) = Claims(tmp_path).live()
    assert claim["holder"] == ELSEWHERE
    assert claim["info"]["node"] == "one"
    assert not take(Writer(Location(str(tmp_path)), [DRIVER]), "two")
    assert Claims(tmp_path).abandon("pack")
    assert take(writer, "two")
    row = {"trial": "a", "experiment": "e", "study": "study", "batch_size": 1}
    assert writer.call("one", "commit", "pack", "e", [], [row]) is None
    assert writer.call("one", "renew", "pack", {}) is False
    assert writer.call("one", "extend", "pack", ["b"], {}) is False
    writer.call("two", "save", "pack", b"later")
    writer.call("one", "save", "pack", b"earlier")
    writer.call("one", "delete", "pack")
    assert writer.call("two", "load", "pack") == b"later"
    writer.call("one", "release", "pack")
    assert writer.call("two", "renew", "pack", {}) is True
    writer.call("two", "delete", "pack")
    assert writer.call("two", "load", "pack") is None
    assert writer.call("two", "commit", "pack", "e", [], [row]) is not None
    writer.call("two", "release", "pack")
    assert Claims(tmp_path).all() == []


def test_the_claim_of_a_dead_rank_is_released_by_its_successor(tmp_path: Path) -> None:
    writer = Writer(Location(str(tmp_path)), [DRIVER])
    assert take(writer, "one")
    writer.call("two", "abandon", "pack")
    assert Claims(tmp_path).all() == []
    assert writer.call("one", "commit", "pack", "e", [], []) is None  # it may live after all
    assert take(writer, "two")
    writer.call("two", "abandon", "pack")
    writer.call("two", "abandon", "pack")
    assert Claims(tmp_path).all() == []


def test_a_worker_of_the_same_sweep_alone_releases_a_claim(tmp_path: Path) -> None:
    """Where workers write themselves, as to an object store."""
    Ledger(str(tmp_path))
    of_another = {**DRIVER, "start": 1}
    for pack, driver in (("ours", DRIVER), ("theirs", of_another)):
        claimed(tmp_path, pack, [pack], holder=ELSEWHERE, processes=[driver])
    raylet = {**processes.identify(), "role": "raylet"}
    for sweep in ([raylet], [{**DRIVER, "machine": "another"}], []):
        Ledger(str(tmp_path), sweep).abandon("ours")
    assert {claim["pack"] for claim in Claims(tmp_path).live()} == {"ours", "theirs"}
    successor = Ledger(str(tmp_path), [raylet, DRIVER])
    assert not successor.take("ours", ["ours"], {}, {})
    for pack in ("ours", "theirs", "none"):
        successor.abandon(pack)
    assert {claim["pack"] for claim in Claims(tmp_path).live()} == {"theirs"}
    assert successor.take("ours", ["ours"], {}, {})


def test_workers_that_do_not_ask_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    box = Mailbox()
    for pack in ("asks", "silent", "loading", "over"):
        given = assignment(1)
        box.put(replace(given, pack=replace(given.pack, id=pack)))
        box.arrive(pack, f"worker of {pack}")
    for pack in ("asks", "silent", "over"):
        box.ask(pack, 1)
    box.leave("over")
    now[0] = 130.0
    box.ask("asks", 1)
    assert box.silent(120.0) == [("silent", "worker of silent")]
    assert box.silent(120.0) == []
