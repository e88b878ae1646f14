"""Twenty faults at random moments of one sweep: its rows are those of an undisturbed one.

A moment is a number of trials that have ended since the sweep was started again, so that a slow
machine meets the same faults as a quick one.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import batchscale as bs
from tests.experiments.test_skewed_clocks import an_hour_ahead
from tests.experiments.undisturbed import (
    Sweep,
    assert_undisturbed,
    claims_of_workers,
    recorded,
    undisturbed,
)

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SLOW = {"FAKE_SECONDS": "0.02"}
SPOOL = re.compile(r"cp -r (\S+)/\. ")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Sweep]]:
    """Starts sweeps of one results folder, and ends what a failing test leaves."""
    started: list[Sweep] = []

    def start(address: str = "none", **environment: str) -> Sweep:
        started.append(Sweep(tmp_path / "runs", address=address, **environment))
        return started[-1]

    yield start
    for sweep in started:
        sweep.kill_group()


class Faults:
    """What may happen to a sweep: each starts it, waits for a moment, and ends it."""

    def __init__(self, start: Callable[..., Sweep], draw: random.Random) -> None:
        self.start, self.draw = start, draw

    def _begun(self, address: str = "none", **environment: str) -> Sweep:
        """A sweep in which so many trials have ended as are drawn: 0 to 4."""
        sweep, ended = self.start(address, **environment), self.draw.randrange(5)
        sweep.until(lambda: "Begun(" in sweep.text)
        sweep.until(lambda: sweep.text.count(" run=None") >= ended)
        return sweep

    def killed(self) -> None:
        self._begun(**SLOW).kill()

    def killed_while_it_plans(self) -> None:
        sweep = self.start(**SLOW)
        sweep.until(lambda: sweep.text)
        sweep.kill()

    def signalled(self, number: signal.Signals) -> None:
        sweep = self._begun(**SLOW)
        os.kill(sweep.pid, number)
        assert "Summary(" in sweep.end(130)

    def folder_moved(self) -> None:
        """It is put back as the message says."""
        sweep = self._begun(**SLOW)
        moved = sweep.root.rename(sweep.root.with_name("moved"))
        text = sweep.end(1)
        assert "is gone: moved, deleted, or its mount is lost" in text
        assert not sweep.root.exists()
        moved.rename(sweep.root)
        if kept := SPOOL.search(text):
            shutil.copytree(kept[1], sweep.root, dirs_exist_ok=True)
            shutil.rmtree(kept[1])

    def clock_skewed(self) -> None:
        """It jumps by a day to and fro, and what is there is of a machine an hour ahead."""
        sweep = self._begun(FAKE_FAULT="clock", **SLOW)
        sweep.kill()
        an_hour_ahead(sweep.root)

    def actor_lost(self) -> None:
        """One of the processes beside the driver dies; the sweep goes on until it is ended."""
        sweep = self.start("auto", FAKE_SECONDS="0.5")
        sweep.until(lambda: claims_of_workers(sweep))
        os.kill(self.draw.choice(_actors(sweep)), signal.SIGKILL)
        sweep.until(lambda: "a process of batchscale beside the driver" in sweep.text)
        os.kill(sweep.pid, signal.SIGTERM)
        assert "failed=0" in sweep.end(130)


def _actors(sweep: Sweep) -> list[int]:
    """The mailbox and the writer of the Ray that a sweep has started."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            command = (each / "cmdline").read_bytes()
            ours = os.getsid(int(each.name)) == sweep.pid
        except (OSError, ProcessLookupError):
            continue
        if ours and command.startswith((b"ray::Mailbox", b"ray::Writer")):
            found.append(int(each.name))
    return sorted(found)


def test_twenty_faults_at_random_moments(start: Callable[..., Sweep], tmp_path: Path) -> None:
    whole = undisturbed(tmp_path / "whole")
    draw = random.Random(0)
    faults = Faults(start, draw)
    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    rounds: list[Callable[[], None]] = [
        *[faults.killed] * 6,
        *[faults.killed_while_it_plans] * 2,
        *[lambda number=number: faults.signalled(number) for number in signals for _ in range(2)],
        *[faults.folder_moved] * 3,
        *[faults.clock_skewed] * 2,
        faults.actor_lost,
    ]
    assert len(rounds) == 20
    draw.shuffle(rounds)
    for strike in rounds:
        strike()
        recorded(tmp_path / "runs")  # every file is whole
    assert 0 < recorded(tmp_path / "runs") < len(whole)
    last = start()
    assert "left=0)" in last.end()
    assert_undisturbed(last.root, whole)
    assert bs.fsck(last.root).defects == []
