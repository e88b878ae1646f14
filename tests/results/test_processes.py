"""Processes are known by number and start, and ended only when it is them."""

from __future__ import annotations

import os
import subprocess
import sys

from results import processes

_DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"


def _child(code: str = "print(1, flush=True)") -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", f"{code}; import time; time.sleep(600)"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def test_this_process_is_alive_and_never_ended() -> None:
    me = processes.identify()
    assert me["pid"] == os.getpid()
    assert processes.alive(me) is True
    assert processes.end(me) is False


def test_ending_one_that_listens_and_one_that_does_not() -> None:
    for code in ("print(1, flush=True)", _DEAF):
        with _child(code) as child:
            process = processes.identify(child.pid)
            assert processes.alive(process) is True
            assert processes.end(process, grace=0.1) is True
            assert processes.alive(process) is False


def test_another_process_with_the_same_number_is_left_alone() -> None:
    with _child() as child:
        other = {**processes.identify(child.pid), "start": 1}
        assert processes.alive(other) is False
        assert processes.end(other) is True  # the one that was meant is gone
        assert child.poll() is None
        child.kill()


def test_of_another_machine_nothing_is_known() -> None:
    far = {**processes.identify(), "machine": "elsewhere"}
    assert processes.alive(far) is None
    assert processes.end(far) is False
