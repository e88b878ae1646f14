"""A head that does not answer any more is noticed from a thread."""

from __future__ import annotations

import socket
import threading

import pytest

from experiments.execution import process_end
from experiments.execution.ray import head


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "_EVERY_SECONDS", 0.02)
    monkeypatch.setattr(head, "_LOST_SECONDS", 0.1)


def test_a_head_that_is_gone() -> None:
    gone = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        watch = head.watching_head(address, gone.set)
        watch.__enter__()
        assert not gone.wait(0.5)
    assert gone.wait(60)
    watch.__exit__(None, None, None)


def test_what_ends_with_the_sweep_is_not_watched() -> None:
    gone = threading.Event()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with head.watching_head(f"127.0.0.1:{unused.getsockname()[1]}", gone.set):
            pass
    assert not gone.wait(0.5)


def test_the_line_and_its_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends: list[int] = []
    monkeypatch.setattr(process_end, "_exit", ends.append)
    process_end.end_without_cluster("10.0.0.1:6379")
    assert ends == [1]
    assert capsys.readouterr().err.splitlines() == [
        "error: the head of the Ray at 10.0.0.1:6379 does not answer any more",
        "hint: what was committed is safe; start the cluster, then give the same command again "
        "to continue",
    ]
