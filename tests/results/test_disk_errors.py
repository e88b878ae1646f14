"""Storage that fails for a moment is tried again; a full or read-only disk is not."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from results.errors import ResultsError
from results.storage import disk_errors, local
from results.storage.location import Location
from results.storage.whole_file import write_file


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only sleeping moves."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def failing(monkeypatch: pytest.MonkeyPatch, clock: list[float], number: int, until: float) -> None:
    real = local.write_file

    def write(path: str, data: Any, root: str | None = None) -> None:
        if clock[0] < until:
            raise OSError(number, "it fails", path)
        real(path, data, root)

    monkeypatch.setattr(local, "write_file", write)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_ten_seconds_are_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float], number: int
) -> None:
    failing(monkeypatch, clock, number, 10.0)
    Location(str(tmp_path)).write("trials/x", b"content")
    assert (tmp_path / "trials" / "x").read_bytes() == b"content"
    assert 10 <= clock[0] < 13


def test_it_ends_after_half_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    failing(monkeypatch, clock, errno.EIO, 1e9)
    with pytest.raises(ResultsError, match="cannot write"):
        Location(str(tmp_path)).write("trials/x", b"content")
    assert clock[0] <= disk_errors.PATIENCE_SECONDS


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_what_does_not_pass_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float], number: int
) -> None:
    failing(monkeypatch, clock, number, 1e9)
    with pytest.raises(ResultsError, match="cannot write"):
        Location(str(tmp_path)).write("trials/x", b"content")
    assert clock[0] == 0.0


def test_a_file_of_which_the_disk_does_not_tell_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = Location(str(tmp_path))
    assert not location.exists("trials/x")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "it fails")

    with monkeypatch.context() as patch:
        patch.setattr(local.os, "stat", refuse)
        with pytest.raises(ResultsError, match="cannot read"):
            location.exists("trials/x")


def test_a_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_file("here", b"content")
    write_file("below/there", b"content")
    assert (tmp_path / "here").read_bytes() == (tmp_path / "below" / "there").read_bytes()
