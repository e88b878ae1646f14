"""Sweeps of 200 trials in which something fails, each compared row by row with an undisturbed one.

Here without Ray; ``test_cluster_faults`` has the faults of a cluster.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

import results as dataset
from results.run_state.claims import Claims
from tests.experiments import sweeping
from tests.experiments.undisturbed import TRIALS, Sweep, assert_undisturbed, recorded

pytestmark = pytest.mark.slow

KILLS = 50
LAST_ROUND = "Round(round=3,"
"""The event of a sweep of ``TRIALS`` that has trained all."""


@pytest.fixture
def culprits(tmp_path: Path, whole: pd.DataFrame) -> tuple[Path, list[str]]:
    """The file of the trials that a fault strikes, one of each study, and the trials. None is of a
    first pack, whose exception would end the sweep."""
    trained = set(whole.index[whole.stop_reason == "target"])
    rows = [study.draw(64, 100) for study in sweeping.many().studies()]
    ids = [next(trial.id for trial in each if trial.id in trained) for each in rows]
    file = tmp_path / "culprits"
    file.write_text("\n".join(ids))
    return file, ids


def test_ended_at_fifty_random_moments(
    start: Callable[..., Sweep], whole: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, or asked to end by one of three signals: while it plans, trains, or writes."""
    monkeypatch.setenv("FAKE_SECONDS", "0.02")
    draw, kills = random.Random(0), 0
    numbers = [signal.SIGKILL] * 5 + [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]
    while kills < KILLS:
        sweep = start()
        sweep.process.join(draw.uniform(0.05, 1.0))
        if not sweep.process.is_alive():  # what the signals let it keep was enough: begin again
            assert sweep.status() == 0, sweep.text
            assert_undisturbed(sweep.root, whole)
            shutil.rmtree(sweep.root)
            continue
        number = draw.choice(numbers)
        os.kill(sweep.pid, number)
        status = sweep.status()
        trains = "Begun(" in sweep.text and LAST_ROUND not in sweep.text
        assert status == 130 or number == signal.SIGKILL or not trains, sweep.text
        kills += 1
        recorded(sweep.root)  # every file is whole
    monkeypatch.delenv("FAKE_SECONDS")
    last = start()
    assert "left=0)" in last.end()
    assert_undisturbed(last.root, whole)


def test_a_driver_killed_and_the_sweep_continued_elsewhere(
    start: Callable[..., Sweep], whole: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "0.02")
    first = start()
    first.until(lambda: recorded(first.root) > 0 and list(first.root.rglob("*.snapshot")))
    first.kill()
    assert 0 < recorded(first.root) < TRIALS
    monkeypatch.delenv("FAKE_SECONDS")
    for claim in (first.root / "claims").glob("*.json"):  # two minutes later
        os.utime(claim, (time.time() - 130, time.time() - 130))
    assert "left=0)" in start(FAKE_HOST="elsewhere").end()
    assert_undisturbed(first.root, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_trains(
    start: Callable[..., Sweep], whole: pd.DataFrame, number: signal.Signals
) -> None:
    """In snapshots, and no claim is left."""
    sweep = start(FAKE_SECONDS="0.05")
    sweep.until(lambda: recorded(sweep.root) > 0)
    os.kill(sweep.pid, number)
    assert "Summary(" in sweep.end(130)
    assert list(sweep.root.rglob("*.snapshot"))
    assert Claims(sweep.root).all() == []
    start().end()
    assert_undisturbed(sweep.root, whole)


def test_two_sweeps_share_the_work(
    start: Callable[..., Sweep], whole: pd.DataFrame, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    both = [start(FAKE_GATE=str(gate)) for _ in range(2)]
    for sweep in both:  # each has a pack before either trains on
        sweep.until(partial(_says, sweep, "Begun("))
    gate.touch()
    assert all("Ended(" in sweep.end() for sweep in both)
    assert_undisturbed(both[0].root, whole)


def test_two_sweeps_on_a_folder_the_first_killed(
    start: Callable[..., Sweep], whole: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "0.02")
    both = [start(), start()]
    for sweep in both:
        sweep.until(partial(_says, sweep, "Ended("))
    both[0].kill()
    assert "left=0)" in both[1].end()
    assert_undisturbed(both[1].root, whole)


def _says(sweep: Sweep, word: str) -> bool:
    return word in sweep.text


def test_storage_that_fails_for_ten_seconds(
    start: Callable[..., Sweep], whole: pd.DataFrame
) -> None:
    sweep = start(FAKE_FAULT="storage-passing")
    assert "left=0)" in sweep.end()
    assert_undisturbed(sweep.root, whole)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("storage-full", "No space left on device"), ("storage-read-only", "Read-only file system")],
)
def test_storage_that_cannot_be_written(
    start: Callable[..., Sweep], whole: pd.DataFrame, fault: str, reason: str
) -> None:
    """It ends with one line and its hint; what was committed is kept, and the next run goes on."""
    sweep = start(FAKE_FAULT=fault)
    text = sweep.end(1)
    error, hint = text.splitlines()[-2:]
    assert error.startswith("error: cannot write ")
    assert error.endswith(reason)
    assert hint.startswith("hint: what was committed before is safe")
    assert not re.search("^Traceback", text, re.MULTILINE)  # but in the repr of an event
    assert recorded(sweep.root) < TRIALS
    start().end()
    assert_undisturbed(sweep.root, whole)


def test_a_clock_that_jumps(start: Callable[..., Sweep], whole: pd.DataFrame) -> None:
    sweep = start(FAKE_FAULT="clock", FAKE_SECONDS="0.01")
    assert "left=0)" in sweep.end()
    assert "hung" not in sweep.text
    assert_undisturbed(sweep.root, whole)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("raises", "ValueError: the seventh step is one too many"),
        ("eats-memory", "MemoryError"),
        ("sleeps", "hung: no progress for"),
    ],
)
def test_trials_that_fail(
    start: Callable[..., Sweep],
    whole: pd.DataFrame,
    culprits: tuple[Path, list[str]],
    fault: str,
    error: str,
) -> None:
    """Of each study one trial fails; the others' rows are those of the undisturbed sweep."""
    file, ids = culprits
    sweep = start(FAKE_FAULT=fault, FAKE_CULPRITS=str(file), FAKE_HANG="1")
    text = sweep.end(3)
    assert "failed=2" in text.splitlines()[-1]
    assert "left=0)" in text.splitlines()[-1]
    assert_undisturbed(sweep.root, whole, dict.fromkeys(ids, error))


def test_a_hang_in_c_ends_the_program_and_the_next_runs_isolate_the_trial(
    start: Callable[..., Sweep], whole: pd.DataFrame, culprits: tuple[Path, list[str]]
) -> None:
    """Without Ray such a call can only be left by ending the program, with a line that says so."""
    file, ids = culprits
    runs = 0
    while runs < 20:
        runs += 1
        sweep = start(FAKE_FAULT="stays-in-c", FAKE_CULPRITS=str(file), FAKE_HANG="3")
        if sweep.status() != 1:
            break
        error, hint = sweep.text.splitlines()[-2:]
        assert error.startswith("error: hung: no progress for")
        assert error.endswith("in code that cannot be interrupted")
        assert hint.startswith("hint: give the same command again: ")
    # Each study's trial is isolated in 1 + log2(n) runs, and passed over by the others.
    assert runs <= 2 * (1 + 6) + 1
    assert "failed=2" in sweep.end(3)
    assert "left=0)" in sweep.text
    assert "2 trials that hung in code that cannot be interrupted are not tried" in sweep.text
    failed = dataset.open(sweep.root).trials.set_index("trial")["error"].dropna()
    assert sorted(failed.index) == sorted(ids)
    assert failed.str.contains("hung: no progress for").all()
    start().end()  # tries them again
    assert_undisturbed(sweep.root, whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("fault", ["sleeps", "stays-in-c"])
def test_a_signal_ends_a_sweep_whose_trial_hangs(
    start: Callable[..., Sweep],
    whole: pd.DataFrame,
    culprits: tuple[Path, list[str]],
    fault: str,
    number: signal.Signals,
) -> None:
    file, _ = culprits
    sweep = start(FAKE_FAULT=fault, FAKE_CULPRITS=str(file))
    sweep.until(lambda: _stands(sweep))
    os.kill(sweep.pid, number)
    assert "interrupted" in sweep.end(130) or "Summary(" in sweep.text
    start().end()
    assert_undisturbed(sweep.root, whole)


def test_the_end_of_its_time_ends_a_sweep_whose_trial_hangs(
    start: Callable[..., Sweep], whole: pd.DataFrame, culprits: tuple[Path, list[str]]
) -> None:
    file, _ = culprits
    sweep = start(FAKE_FAULT="sleeps", FAKE_CULPRITS=str(file), FAKE_FOR="8")
    assert "left=0)" not in sweep.end()
    start().end()
    assert_undisturbed(sweep.root, whole)


def _stands(sweep: Sweep) -> bool:
    """Whether no pack has moved for three seconds, after one has begun."""
    before = _moves(sweep)
    time.sleep(3)
    return "Begun(" in sweep.text and _moves(sweep) == before


def _moves(sweep: Sweep) -> list[str]:
    return [line for line in sweep.text.splitlines() if not line.startswith("TimeLeft(")]
