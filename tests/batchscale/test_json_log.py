"""``sweep --log json``: what the display shows, an object a line."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from batchscale.output.json_log import JsonLog
from experiments.plan import Outcome
from experiments.scheduling import messages
from tests.batchscale.conftest import Command
from tests.batchscale.test_display import FAILED, Clock, ended, planned, started
from tests.batchscale.test_tracking import EXPERIMENT


def lines(log: JsonLog, capsys: pytest.CaptureFixture[str], *events: Any) -> list[dict[str, Any]]:
    for event in events:
        log(event)
    said = capsys.readouterr()
    assert said.out == ""
    rows = [json.loads(line) for line in said.err.splitlines()]
    for row in rows:
        assert datetime.fromisoformat(row.pop("time")).utcoffset() is not None
    return rows


def progress(step: int, metric: float | None = 0.5) -> messages.Progress:
    return messages.Progress(pack="p", study="8", step=step, steps=step, active=3, metric=metric)


def test_each_event_is_an_object_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    rows = lines(
        JsonLog(Clock()), capsys,
        messages.Stage(text="planning\nthe studies"), planned("8", done=1), started("p", "8"),
        ended("8"), messages.Ended(pack="p", study="8", outcomes=(), run="safe"), FAILED,
        messages.Note(text="a note"), messages.Round(round=0, trials=16, reached=1, studies=2),
        messages.TimeLeft(seconds=float("inf")),
    )  # fmt: skip
    assert rows == [
        {"event": "stage", "text": r"planning\nthe studies"},
        {
            "event": "study", "study": "8", "label": "sgd, batch 8", "batch_size": 1, "trials": 4,
            "done": 1, "reached": 0, "infeasible": 0, "dominated": 0, "budget_steps": 0,
        },
        {
            "event": "begun", "pack": "p", "study": "8", "trials": 4, "engine": "stacked",
            "round": 0, "step": 0,
        },
        {
            "event": "ended", "pack": "p", "study": "8", "trial": "t", "status": "COMPLETE",
            "stop_reason": "target", "steps_run": 9, "steps_to_target": 9, "train_seconds": 0.0,
            "resumed": False,
        },
        {
            "event": "over", "pack": "p", "study": "8", "end": "failed", "seconds": 0.0,
            "error": "ValueError: no",
        },
        {"event": "note", "text": "a note", "pack": None},
        {"event": "round", "round": 0, "trials": 16, "reached": 1, "studies": 2},
        {"event": "time_left", "seconds": None},
    ]  # fmt: skip


def test_progress_of_a_pack_comes_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    log = JsonLog(clock)
    steps = []
    for second in range(25):
        steps += [row["step"] for row in lines(log, capsys, progress(second, float("nan")))]
        clock.now += 1
    assert steps == [0, 10, 20]


def test_a_trial_that_went_on_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(
        trial="t", status="COMPLETE", stop_reason="budget", steps_run=9, examples_run=72
    )
    event = messages.Ended(pack="p", study="8", outcomes=(outcome,), resumed=frozenset({"t"}))
    (row,) = lines(JsonLog(Clock()), capsys, event)
    assert (row["resumed"], row["steps_to_target"]) == (True, None)


def test_a_sweep_prints_its_result_to_stdout_alone(command: Command, here: Path) -> None:
    (here / "tracked.yaml").write_text(EXPERIMENT)
    done = command("sweep", "tracked.yaml", "--address", "none", "--log", "json")
    assert done.status == 0
    assert done.out.startswith("tracked: 4 trials trained in ")
    events = [json.loads(line)["event"] for line in done.err.splitlines()]
    assert events[0] == "stage"
    assert events.count("study") == 2
    assert events.count("ended") == 4
    assert {"begun", "over"} <= {*events}
    assert command("sweep", "tracked.yaml", "--log", "xml").status == 2
