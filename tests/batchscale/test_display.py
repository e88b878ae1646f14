"""The live display, from its events alone: what it counts and what it prints."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from batchscale.display import Display, Tally
from experiments.driver import events
from experiments.plan import Outcome, Status, StopReason


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def planned(study: str, **changes: int) -> events.StudyPlanned:
    counts = {"trials": 4, "done": 0, "reached": 0, "infeasible": 0, "dominated": 0, **changes}
    return events.StudyPlanned(study=study, label=f"sgd, batch {study}", **counts)


def started(pack: str, study: str) -> events.PackStarted:
    return events.PackStarted(pack=pack, study=study, trials=4, engine="stacked", round=0)


def ended(study: str, reason: StopReason = "target", status: Status = "COMPLETE") -> events.Event:
    outcome = Outcome(
        trial="t",
        status=status,
        stop_reason=reason,
        steps_run=9,
        examples_run=72,
        steps_to_target=9 if reason == "target" else None,
    )
    return events.TrialFinished(study=study, outcome=outcome)


def test_counts_feasible_trials_only_towards_what_is_wanted() -> None:
    tally = Tally(clock=Clock())
    tally.take(planned("8"))
    for event in (ended("8"), ended("8", "diverged", "INFEASIBLE"), ended("8", "budget")):
        tally.take(event)
    assert (tally.feasible, tally.wanted, tally.finished) == (2, 4, 3)
    assert dict(tally.stops)["diverged"] == 1


def test_what_earlier_runs_did_counts_but_not_in_the_rate() -> None:
    clock = Clock()
    tally = Tally(clock=clock)
    tally.take(planned("8", done=3, reached=1, infeasible=1, dominated=1))
    clock.now += 10
    tally.take(ended("8"))
    assert tally.feasible == 3
    assert tally.rate == pytest.approx(0.1)
    assert tally.stops["target"] == 2


def test_the_time_left_goes_by_each_studys_own_cost() -> None:
    clock = Clock()
    tally = Tally(clock=clock)
    for study in ("8", "64"):
        tally.take(planned(study))
    assert tally.left() is None
    # Two workers, 10 s: study 8 took 10 s for one trial, study 64 took 10 s for four.
    for study, count in (("8", 1), ("64", 4)):
        for _ in range(count):
            tally.take(ended(study))
        tally.take(events.PackFinished(pack=f"p{study}", study=study, seconds=10.0))
    clock.now += 10
    assert tally.left() == pytest.approx(3 * 10 / 2)


def test_without_a_terminal_a_line_every_ten_seconds() -> None:
    clock, out = Clock(), io.StringIO()
    display = Display(Console(file=out, highlight=False, width=200), clock)
    with display:
        display(planned("8"))
        display(started("p", "8"))
        for _ in range(3):
            clock.now += 4
            display(ended("8"))
        display(events.Note(text="momentum: no study has reached [the target]"))
        display(events.PackFinished(pack="p", study="8", seconds=12.0, error="ValueError: no"))
        display(events.RoundFinished(round=0, trials=16, reached=1, studies=1))
    lines = out.getvalue().splitlines()
    assert lines == [
        "0:12  3 of 4 trials, reached 3, 0.2 trials/s",
        "momentum: no study has reached [the target]",
        "a pack of sgd, batch 8 failed: ValueError: no",
        "16 trials a study: 1 of 1 study has reached the target",
        "0:12  3 of 4 trials, reached 3, 0.2 trials/s, 0:04 left",
    ]


def test_on_a_terminal_a_panel_of_what_runs() -> None:
    clock, out = Clock(), io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, highlight=False)
    display = Display(console, clock)
    for event in (planned("8"), planned("64"), started("p", "8"), ended("8")):
        display(event)
    display(events.Progress(pack="p", study="8", step=1234, active=3, metric=0.0521))
    console.print(display._panel())
    shown = out.getvalue()
    for part in ("1 of 8 trials", "1 of 2 studies has reached the target", "step 1,234"):
        assert part in shown
    assert "stacked engine" in shown
    assert "best 0.0521" in shown


def test_a_panel_before_any_event_is_no_error() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    console.print(Display(console, Clock())._panel())


def test_the_last_line_is_said_once() -> None:
    clock, out = Clock(), io.StringIO()
    with Display(Console(file=out, highlight=False, width=200), clock) as display:
        display(planned("8"))
        clock.now += 11
        display(ended("8"))
    assert out.getvalue() == "0:11  1 of 4 trials, reached 1, 0.1 trials/s\n"


def test_the_failure_that_ends_a_sweep_is_not_said_twice() -> None:
    out = io.StringIO()
    display = Display(Console(file=out, highlight=False), Clock())

    def sweep() -> None:
        with display:
            display(planned("8"))
            display(started("p", "8"))
            display(events.PackFinished(pack="p", study="8", seconds=1.0, error="ValueError: no"))
            raise RuntimeError("which says so itself")

    with pytest.raises(RuntimeError):
        sweep()
    assert not out.getvalue()
