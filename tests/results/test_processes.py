"""Processes are known by number and start, and ended only when they show whose they are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from results.run_state import processes
from results.run_state.processes import MARK, Process

_DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"

seen = pytest.mark.skipif(
    not os.path.exists("/proc/self/environ"), reason="the system does not show it"
)


def _child(code: str = "print(1, flush=True)", **environment: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", f"{code}; import time; time.sleep(600)"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def _mark(process: Process) -> str:
    return f"{process['machine']}/{process['pid']}/{process['start']}"


@pytest.fixture
def gone() -> Process:
    """A process that has ended."""
    with _child() as child:
        process = processes.identify(child.pid)
        child.kill()
    return process


@pytest.fixture
def left(gone: Process) -> Iterator[subprocess.Popen[str]]:
    """A process that it has left behind."""
    with _child(**{MARK: _mark(gone)}) as child:
        yield child
        child.kill()


def _end(process: Any, starter: Any) -> bool:
    return processes.end(process, starter=starter, grace=0.1)


def test_this_process_is_alive_and_never_ended(gone: Process) -> None:
    me = processes.identify()
    assert me["pid"] == os.getpid()
    assert processes.alive(me) is True
    assert _end(me, gone) is False


@seen
def test_ending_one_that_listens_and_one_that_does_not(gone: Process) -> None:
    for code in ("print(1, flush=True)", _DEAF):
        with _child(code, **{MARK: _mark(gone)}) as child:
            process = processes.identify(child.pid)
            assert processes.alive(process) is True
            assert _end(process, gone) is True
            assert processes.alive(process) is False


@seen
def test_what_a_marking_process_starts_carries_its_mark() -> None:
    before = dict(os.environ)
    with processes.leaving_mark():
        assert os.environ[MARK] == _mark(processes.identify())
    assert dict(os.environ) == before
    code = (
        "import subprocess, sys\n"
        "from results.run_state import processes\n"
        "with processes.leaving_mark():\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}\nimport time; time.sleep(600)"],
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        driver = processes.identify(starter.pid)
        child_of_it = processes.identify(int(starter.stdout.readline()))
        assert _end(child_of_it, driver) is False  # its starter still runs
        assert processes.alive(child_of_it) is True
        starter.kill()
    assert _end(child_of_it, driver) is True


def test_one_that_is_just_starting_shows_its_environment_late(
    gone: Process, left: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between ``exec`` and the first instruction of a program, Linux shows an empty one."""
    shown, wait = tmp_path / "environ", time.sleep
    shown.touch()

    def load(seconds: float) -> None:
        shown.write_bytes(f"A=b\0{MARK}={_mark(gone)}\0".encode())
        wait(seconds)

    monkeypatch.setattr(processes, "_ENVIRONMENT", str(shown))
    monkeypatch.setattr(time, "sleep", load)
    assert _end(processes.identify(left.pid), gone) is True


def test_one_without_an_environment_is_not_ended(
    gone: Process, left: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "environ").touch()
    monkeypatch.setattr(processes, "_ENVIRONMENT", str(tmp_path / "environ"))
    monkeypatch.setattr(processes, "_STARTING", 0.05)
    assert _end(processes.identify(left.pid), gone) is False
    assert left.poll() is None


def test_what_cannot_be_shown_to_be_left_is_not_ended(
    gone: Process, left: subprocess.Popen[str]
) -> None:
    process, me = processes.identify(left.pid), processes.identify()
    with _child() as stranger:
        # As anybody may write it down: the right machine, number and start of a process.
        assert _end(processes.identify(stranger.pid), gone) is False
        assert stranger.poll() is None
        stranger.kill()
    for other, starter in (
        (process, me),  # a starter that lives
        (process, {**gone, "machine": "elsewhere"}),
        (process, {**gone, "start": None}),
        (process, {**gone, "start": (gone["start"] or 0) + 1}),
        (process, {**gone, "pid": 2**31 - 1}),
        ({**process, "machine": "elsewhere"}, gone),
        ({**process, "start": None}, gone),
    ):
        assert _end(other, starter) is False
        assert left.poll() is None


@seen
def test_a_mark_that_is_part_of_another_is_none(gone: Process) -> None:
    for value in (f"{_mark(gone)}0", f"x{_mark(gone)}", ""):
        with _child(**{MARK: value}) as child:
            assert _end(processes.identify(child.pid), gone) is False
            child.kill()
    with _child(**{f"X{MARK}": _mark(gone), "OTHER": f"{MARK}={_mark(gone)}"}) as child:
        assert _end(processes.identify(child.pid), gone) is False
        child.kill()


def test_without_proc_nothing_is_ended(
    gone: Process, left: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = processes.identify(left.pid)
    monkeypatch.setattr(processes, "_ENVIRONMENT", "/nowhere/{}/environ")
    assert _end(process, gone) is False
    monkeypatch.undo()
    monkeypatch.setattr(processes, "_STAT", "/nowhere/{}/stat")
    assert processes.identify(left.pid)["start"] is None
    _end(process, gone)  # it cannot even be told whether it runs
    assert left.poll() is None


@seen
def test_another_process_with_the_same_number_is_left_alone(
    gone: Process, left: subprocess.Popen[str]
) -> None:
    other = {**processes.identify(left.pid), "start": 1}
    assert processes.alive(other) is False
    assert _end(other, gone) is True  # the one that was meant is gone
    assert left.poll() is None


def test_of_another_machine_nothing_is_known(gone: Process) -> None:
    far = {**processes.identify(), "machine": "elsewhere"}
    assert processes.alive(far) is None
    assert _end(far, gone) is False
