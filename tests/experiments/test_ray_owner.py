"""Which Ray ``--address auto`` joins: one of this user's alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.execution.ray import owner, start
from experiments.execution.ray.owner import read_own


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which this user listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


@pytest.fixture
def file(tmp_path: Path, port: int) -> Path:
    """What ``ray start`` writes."""
    file = tmp_path / "ray_current_cluster"
    file.write_text(f"127.0.0.1:{port}")
    return file


def test_ones_own_is_joined(file: Path, port: int) -> None:
    assert read_own(file) == (f"127.0.0.1:{port}", None)


def test_where_there_is_none(tmp_path: Path) -> None:
    assert read_own(tmp_path / "gone") == (None, None)


def test_another_users_is_not(file: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has written the file, and whoever listens."""
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    address, note = read_own(file)
    assert address is None
    assert note is not None
    assert f"the Ray at 127.0.0.1:{port}" in note
    assert f"another user (id {user})" in note
    assert "--address HOST:PORT joins it all the same" in note


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not list them")
def test_who_listens_counts(file: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of one's own may be older than what listens now."""
    assert owner._listeners(f"127.0.0.1:{port}") == {os.getuid()}
    assert owner._listeners("198.51.100.1:1") == set()  # of another machine that is not known
    monkeypatch.setattr(owner, "_listeners", lambda _: {os.getuid() + 1})
    assert read_own(file)[0] is None


def test_a_sweep_starts_its_own_and_says_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray._private.utils.get_ray_address_file", lambda _: str(file))
    monkeypatch.setattr(start, "_start", lambda *_: None)
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    local = start.LocalRay()
    try:
        assert local.wait()
        assert local.address is None
        assert local.ours
        assert "it is not joined" in (local.note or "")
    finally:
        local.end()
