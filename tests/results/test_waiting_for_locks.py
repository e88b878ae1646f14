"""Claims where a file system has no hard links, and locks that somebody holds."""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path

import pytest

from results.errors import ResultsError
from results.run_state import claim_files, lock_holders
from results.run_state.claims import Claims
from results.run_state.lock_holders import Waiting
from tests.results.test_claims import _age, _take


def test_claims_need_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    first = _take(tmp_path)
    assert first is not None
    assert _take(tmp_path) is None
    assert first.held()
    _age(tmp_path, "p")
    second = _take(tmp_path)
    assert second is not None
    assert (first.held(), second.held()) == (False, True)
    assert [path.name for path in (tmp_path / "claims").glob("p*")] == ["p.json"]


def test_without_locks_two_that_create_at_once_do_not_both_hold(tmp_path: Path) -> None:
    files = claim_files.FolderFiles(Claims(tmp_path).location)
    (tmp_path / "claims").mkdir()
    held = [files.create("claims/p.json", b"{}", 0) for _ in range(2)]
    assert [each is not None and each.held() for each in held] == [False, True]


def test_what_is_forbidden_is_not_said_to_need_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(ResultsError, match="Operation not permitted") as caught:
        _take(tmp_path)
    assert "free some space" not in str(caught.value.hint)
    assert not list((tmp_path / "claims").glob("p*"))


def test_who_holds_the_lock_is_named_while_another_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lock_holders, "SAY_SECONDS", 0.02)
    named = threading.Event()
    monkeypatch.setattr(caplog.handler, "emit", _then(caplog.handler.emit, named))
    taken: list[bool] = []
    with caplog.at_level(logging.WARNING, "batchscale"), Claims(tmp_path).locked():
        other = threading.Thread(target=lambda: taken.append(_take(tmp_path) is not None))
        other.start()
        assert named.wait(60)
        assert taken == []
    other.join()
    assert taken == [True]
    line = caplog.messages[0]
    assert line.startswith(f"waiting for the lock {tmp_path}/claims/.lock since ")
    assert f"process {os.getpid()} on " in line


def _then(emit: object, event: threading.Event) -> object:
    def both(record: logging.LogRecord) -> None:
        emit(record)  # type: ignore[operator]
        event.set()

    return both


@pytest.mark.parametrize(
    ("content", "holder"),
    [
        (json.dumps({"machine": "node7/boot/1", "pid": 12}).encode(), "process 12 on node7 holds"),
        (json.dumps({"machine": "\x1b[31m", "pid": 12}).encode(), r"process 12 on \x1b[31m holds"),
        (b"", "another process holds"),
        (b'{"machine": "a", "pid": "x"}', "another process holds"),
        (b"[1]", "another process holds"),
    ],
)
def test_what_a_lock_says(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, content: bytes, holder: str
) -> None:
    monkeypatch.setattr(lock_holders, "SAY_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING, "batchscale"):
        Waiting("there", longest=0.0).pause(lambda: content)
    assert holder in caplog.messages[0]
