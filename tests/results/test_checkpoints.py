"""Snapshots of packs: the same bytes back, the last whole one after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.errors import ResultsError
from results.run_state.checkpoints import Checkpoints
from results.storage import location
from results.storage.location import Location


def test_bytes_in_and_out(tmp_path: Path, bucket: Location) -> None:
    for root in (tmp_path, bucket):
        snapshots = Checkpoints(root)
        assert snapshots.list() == []
        assert snapshots.load("p") is None
        snapshots.save("p", b"one")
        snapshots.save("p", bytes(range(256)) * 1000)
        snapshots.save("q", b"")
        assert snapshots.load("p") == bytes(range(256)) * 1000
        assert snapshots.list() == ["p", "q"]
        snapshots.delete("p")
        snapshots.delete("p")
        assert snapshots.list() == ["q"]


def test_a_crash_keeps_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = Checkpoints(tmp_path)
    snapshots.save("p", b"one")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(location.os, "fsync", full)
    with pytest.raises(ResultsError, match="No space left on device"):
        snapshots.save("p", b"two")
    assert snapshots.load("p") == b"one"
    assert snapshots.list() == ["p"]
    with pytest.raises(ResultsError, match="cannot name a folder"):
        snapshots.save("../p", b"")
