"""The actor that writes for workers elsewhere: each claim is of the worker that took it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from results.run_state import processes
from results.run_state.claims import Claims
from results.storage.location import Location

pytest.importorskip("ray")

from experiments.execution.ray.mailbox import Mailbox, Writer

DRIVER = {**processes.identify(), "role": "driver"}
ELSEWHERE = {**processes.identify(), "machine": "another"}


def take(writer: Writer, worker: str) -> Any:
    info = {"study": "study", "node": worker}
    return writer.call(worker, "take", "pack", ["a"], info, {}, holder=ELSEWHERE)


def test_a_worker_that_was_declared_dead_does_not_commit(tmp_path: Path) -> None:
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
    writer.call("one", "release", "pack")
    assert writer.call("two", "renew", "pack", {}) is True
    assert writer.call("two", "commit", "pack", "e", [], [row]) is not None
    writer.call("two", "release", "pack")
    assert Claims(tmp_path).all() == []


def test_workers_that_do_not_ask_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    box = Mailbox()
    for pack in ("asks", "silent", "loading", "over"):
        box.arrive(pack, f"worker of {pack}")
    for pack in ("asks", "silent", "over"):
        box.control(pack)
    box.leave("over")
    now[0] = 130.0
    box.control("asks")
    assert box.silent(120.0) == [("silent", "worker of silent")]
    assert box.silent(120.0) == []
