"""The live display, from its events alone: what it counts and what it prints."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console

from batchscale.output.display import Display
from batchscale.output.tally import Tally
from experiments.plan import Outcome, Status, StopReason
from experiments.scheduling import messages


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plain() -> tuple[Clock, io.StringIO, Display]:
    """A display without a terminal."""
    clock, out = Clock(), io.StringIO()
    return clock, out, Display(Console(file=out, highlight=False, width=200), clock)


def planned(study: str, **changes: Any) -> messages.StudyPlanned:
    counts: dict[str, Any] = {"trials": 4, "done": 0, "reached": 0, "infeasible": 0, "dominated": 0}
    counts |= changes
    return messages.StudyPlanned(study=study, label=f"sgd, batch {study}", **counts)


def started(pack: str, study: str) -> messages.Begun:
    return messages.Begun(pack=pack, study=study, trials=4, engine="stacked", round=0)


def ended(study: str, reason: StopReason = "target", status: Status = "COMPLETE") -> messages.Event:
    outcome = Outcome(
        trial="t",
        status=status,
        stop_reason=reason,
        steps_run=9,
        examples_run=72,
        steps_to_target=9 if reason == "target" else None,
    )
    return messages.Ended(pack="p", study=study, outcomes=(outcome,))


FAILURE = messages.Failure(message="ValueError: no", hint=None, traceback="", clear=False)
FAILED = messages.Over(pack="p", study="8", end="failed", failure=FAILURE)


def begun(*events: messages.Event) -> tuple[Clock, Tally]:
    clock = Clock()
    tally = Tally(clock=clock)
    for event in events:
        tally.take(event)
    return clock, tally


def test_counts_feasible_trials_only_towards_what_is_wanted() -> None:
    endings = ended("8"), ended("8", "diverged", "INFEASIBLE"), ended("8", "budget")
    _, tally = begun(planned("8"), *endings)
    assert (tally.feasible, tally.wanted, tally.finished) == (2, 4, 3)
    assert dict(tally.stops)["diverged"] == 1


def test_repeats_are_counted_beside_what_is_wanted() -> None:
    _, tally = begun(planned("8"), planned("64"), *[ended("8")] * 6)
    assert (tally.feasible, tally.counted) == (4, "4 of 8 trials and 2 more")


def test_what_earlier_runs_did_counts_but_not_in_the_rate() -> None:
    clock, tally = begun(planned("8", done=3, reached=1, infeasible=1, dominated=1))
    clock.now += 10
    tally.take(ended("8"))
    assert tally.feasible == 3
    assert tally.rate == "6 trials/min"
    assert tally.stops["target"] == 2


def progress(pack: str, study: str, steps: int) -> messages.Progress:
    return messages.Progress(pack=pack, study=study, step=steps, steps=steps, active=3, metric=None)


def test_steps_and_examples_a_second_from_the_first_step_of_all_packs() -> None:
    sizes = [planned("8", batch_size=8), planned("64", batch_size=64)]
    clock, tally = begun(*sizes, started("p8", "8"), started("p64", "64"))
    assert tally.speed() == []
    clock.now += 2
    tally.take(progress("p8", "8", 30))
    tally.take(progress("p64", "64", 10))
    clock.now += 2
    tally.take(progress("p8", "8", 60))
    assert (tally.steps, tally.examples) == (70, 60 * 8 + 10 * 64)
    assert tally.speed() == ["17.5 steps/s", "280 examples/s"]


def test_steps_that_are_heard_of_at_once_say_nothing_of_the_speed() -> None:
    clock, tally = begun(planned("8", batch_size=8), started("p", "8"))
    clock.now += 0.001
    tally.take(progress("p", "8", 1000))
    assert tally.speed() == []
    clock.now += 1.999
    assert tally.speed() == ["500 steps/s", "4,000 examples/s"]


def test_what_is_trained_a_second_is_that_of_the_last_while() -> None:
    clock, tally = begun(planned("8", batch_size=8), started("p", "8"))
    for second in range(1, 101):
        clock.now += 1
        tally.take(progress("p", "8", 10 * min(second, 50) + 1000 * max(0, second - 50)))
    assert tally._per_second(1) == pytest.approx(1000)


def test_a_pack_that_goes_on_counts_from_where_its_worker_took_it_up() -> None:
    clock, tally = begun(planned("8", batch_size=8))
    for _ in range(2):
        tally.take(started("p", "8"))
        clock.now += 1
        tally.take(progress("p", "8", 10))
        tally.take(messages.Over(pack="p", study="8", end="done"))
    assert tally.steps == 20


def test_units_are_the_workloads_and_tokens_count_where_there_are_some() -> None:
    text = planned("8", batch_size=8, example_unit="sequence", tokens_per_example=64)
    clock, tally = begun(text, started("p", "8"))
    clock.now += 4
    tally.take(progress("p", "8", 400))
    assert tally.speed() == ["100 steps/s", "800 sequences/s", "51,200 tokens/s"]
    tally.take(planned("4", batch_size=4, example_unit="sequence", tokens_per_example=32))
    tally.take(started("q", "4"))
    tally.take(progress("q", "4", 400))
    assert tally.speed() == ["200 steps/s", "1,200 sequences/s", "64,000 tokens/s"]
    tally.take(planned("2", batch_size=2, example_unit="sequence"))
    assert tally.speed() == ["200 steps/s", "1,200 sequences/s"]


def test_without_a_terminal_a_line_for_the_first_trial_then_every_ten_seconds() -> None:
    clock, out, display = plain()
    with display:
        display(planned("8"))
        display(started("p", "8"))
        for _ in range(3):
            clock.now += 4
            display(ended("8"))
        display(messages.Note(text="momentum: no study has reached [the target]"))
        display(FAILED)
        display(messages.Round(round=0, trials=16, reached=1, studies=1))
        display(messages.TimeLeft(seconds=4.2))
    lines = out.getvalue().splitlines()
    assert lines == [
        "plan: 1 study at 1 batch size, 4 trials wanted",
        "0:04  1 of 4 trials, reached 1, 15 trials/min",
        "momentum: no study has reached [the target]",
        "a pack of sgd, batch 8 failed: ValueError: no",
        "16 trials a study: 1 of 1 study has reached the target",
        "0:12  3 of 4 trials, reached 3, 15 trials/min, 0:04 left",
    ]


def test_a_stage_that_lasts_is_said_once_and_one_that_does_not_never() -> None:
    clock, out, display = plain()
    display(messages.Stage(text="reading the experiment"))
    clock.now += 1
    display(messages.Stage(text="planning the studies"))
    for _ in range(30):
        clock.now += 0.5
        display.say_what_is_due()
    assert out.getvalue() == "0:03  planning the studies\n"


def test_the_first_step_is_said_at_once_and_silence_does_not_stop_the_lines() -> None:
    clock, out, display = plain()
    display(messages.Stage(text="waiting for the first worker"))
    display(planned("8", batch_size=8, budget_steps=1950))
    display(started("p", "8"))
    clock.now += 1
    display(progress("p", "8", 5))
    for _ in range(20):  # an evaluation that takes long
        clock.now += 1
        display.say_what_is_due()
    where = "sgd, batch 8: step 5 of 1,950"
    assert out.getvalue().splitlines() == [
        "plan: 1 study at 1 batch size, 4 trials wanted",
        "0:01  0 of 4 trials, 5 steps/s, 40 examples/s",
        f"0:11  0 of 4 trials, 0.455 steps/s, 3.64 examples/s; {where}, at most 1:11:19 left",
        f"0:21  0 of 4 trials, 0.238 steps/s, 1.9 examples/s; {where}, at most 2:16:09 left",
    ]


@pytest.mark.slow
def test_lines_come_without_events_too() -> None:
    out = io.StringIO()
    with Display(Console(file=out, highlight=False, width=200)) as display:
        display(messages.Stage(text="planning the studies"))
        until = time.monotonic() + 60
        while not out.getvalue() and time.monotonic() < until:
            time.sleep(0.05)
    assert out.getvalue().endswith("planning the studies\n")


def test_a_pack_that_goes_on_says_where_and_whether_this_run_began_it() -> None:
    _, out, display = plain()
    display(planned("8", batch_size=8, budget_steps=1950, done=2))
    begun = messages.Begun(pack="p", study="8", trials=4, engine="module", round=0, step=615)
    for _ in range(2):
        display(begun)
    assert out.getvalue().splitlines() == [
        "plan: 1 study at 1 batch size, 4 trials wanted, 2 recorded by earlier runs",
        "sgd, batch 8: goes on where an earlier run ended, at step 615 (4 trials)",
        "sgd, batch 8: goes on, at step 615 (4 trials)",
    ]


def test_a_long_pack_says_its_best_metric_and_its_time_left() -> None:
    clock, out, display = plain()
    display(planned("8", batch_size=8, budget_steps=1000))
    display(messages.Begun(pack="p", study="8", trials=4, engine="module", round=0, step=500))
    display(messages.Progress(pack="p", study="8", step=501, steps=2, active=2, metric=0.5))
    clock.now += 100
    display(messages.Progress(pack="p", study="8", step=600, steps=200, active=2, metric=0.25))
    assert (
        out.getvalue()
        .splitlines()[-1]
        .endswith("; sgd, batch 8: step 600 of 1,000, best 0.25, at most 6:40 left")
    )


def test_on_a_terminal_a_panel_of_what_runs() -> None:
    clock, out = Clock(), io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, highlight=False)
    display = Display(console, clock)
    for event in (planned("8", budget_steps=2000), planned("64"), started("p", "8"), ended("8")):
        display(event)
    display(messages.Progress(pack="p", study="8", step=1234, steps=4000, active=3, metric=0.0521))
    console.print(display._panel())
    shown = out.getvalue()
    for part in ("1 of 8 trials", "1 of 2 studies has reached the target", "step 1,234 of"):
        assert part in shown
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
    assert out.getvalue() == "0:11  1 of 4 trials, reached 1, 5.45 trials/min\n"


def test_the_failure_that_ends_a_sweep_is_not_said_twice() -> None:
    out = io.StringIO()
    display = Display(Console(file=out, highlight=False), Clock())

    def sweep() -> None:
        with display:
            display(planned("8"))
            display(started("p", "8"))
            display(FAILED)
            raise RuntimeError("which says so itself")

    with pytest.raises(RuntimeError):
        sweep()
    assert "failed" not in out.getvalue()
