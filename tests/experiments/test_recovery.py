"""What becomes of the trials of packs that fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from experiments.errors import ExperimentError, TrainingError
from experiments.plan import Outcome
from experiments.scheduling import failures
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.messages import Assignment, Ended, Note
from tests.experiments.test_dispatch import dispatcher, drive, failure, finish, state, take, train


def fail(of: Dispatcher, assignment: Assignment, cause: str) -> None:
    """A pack ends; where its trial is known, or raises alone, its worker has recorded it."""
    alone = len(assignment.wanted) == 1 and cause in ("raised", "memory")
    trial = min(assignment.wanted) if cause == "known" or alone else None
    if trial is not None:
        ended = Outcome(
            trial=trial, status="INCOMPLETE", stop_reason="error", steps_run=3, examples_run=1
        )
        of.receive(assignment.ended([ended], "run"))
    cause = "raised" if cause == "known" else cause
    of.receive(assignment.over("failed", failure(trial=trial, cause=cause)))


def failed(of: Dispatcher) -> int:
    """Trials that are recorded as failed."""
    records = (record for each in of.states for record in each.records.values())
    return sum(record.stop_reason == "error" for record in records)


@pytest.mark.parametrize(
    ("trials", "causes", "then", "rows"),
    [
        (4, ["known"], [3], 0),
        (4, ["raised"], [2, 2], 0),
        (4, ["memory"], [2, 2], 0),
        (4, ["hung"], [2, 2], 0),
        (4, ["died"], [2, 2], 0),
        (4, ["lost"] * 9, [4], 0),
        (4, ["lost"] * 10, [2, 2], 0),
        (4, ["lost", "died"], [2, 2], 0),
        (4, ["died", "lost"], [2, 2], 0),
        (1, ["raised"], [], 0),
        (1, ["memory"], [], 0),
        (1, ["hung"], [1], 0),
        (1, ["died"], [1], 0),
        (1, ["died", "hung"], [], 1),
        (1, ["died", "lost", "died"], [], 1),
        (1, ["lost"] * 19, [1], 0),
        (1, ["lost"] * 20, [], 1),
    ],
)
def test_what_a_failed_pack_does_next(
    trials: int, causes: Sequence[str], then: list[int], rows: int
) -> None:
    """Of a shape that has trained: the sizes of what goes out, and how many rows of failed trials
    the dispatcher writes; those of exceptions of a trial alone are their workers'."""
    written: list[str] = []
    of, seen = dispatcher(
        [state("a", trials=1), state("b", trials=trials)],
        record=lambda _, outcome: written.append(outcome.trial) or "safe",
    )
    finish(of, take(of))
    for cause in causes:
        fail(of, take(of), cause)
    assert [len(assignment.wanted) for assignment in drive(of)] == then
    assert len(written) == rows
    for run in (None, "safe"):  # at once, and when the row is written
        ended = [event for event in seen if isinstance(event, Ended) and event.run == run]
        assert [outcome.trial for event in ended for outcome in event.outcomes] == written
    assert failed(of) == trials - sum(then)
    assert of.error is None
    assert of.hopeless() is None


@pytest.mark.parametrize("cause", ["raised", "memory", "hung", "died"])
@pytest.mark.parametrize("culprit", ["b-0", "b-6", "b-15"])
def test_a_failed_pack_is_bisected(cause: str, culprit: str) -> None:
    """1 + log2(16) failures isolate the trial that is the cause; the others are trained."""
    of, seen = dispatcher([state("a", trials=16), state("b", trials=16)])
    first = take(of)
    assert culprit not in first.wanted
    finish(of, first)
    number, assignments = 0, []
    while isinstance(assignment := of.next(), Assignment):
        assignments.append(assignment)
        if culprit in assignment.wanted:
            number += 1
            fail(of, assignment, cause)
        else:
            finish(of, assignment)
    assert number == 5
    assert failed(of) == 1
    last = {trial: assignment for assignment in assignments for trial in assignment.wanted}
    assert last.keys() == {f"b-{i}" for i in range(16)}
    assert all(
        culprit not in assignment.wanted for trial, assignment in last.items() if trial != culprit
    )
    assert of.error is None
    assert any(isinstance(event, Note) for event in seen)


def test_bisection_among_trials_that_have_not_ended_stops_nothing() -> None:
    of, _ = dispatcher([state("a", trials=16)], slots=16, pack_size=16)
    first = take(of)
    culprit = first.pack.trials[0].id
    train(of, first)
    fail(of, first, "raised")
    while isinstance(assignment := of.next(), Assignment):
        if culprit in assignment.wanted:
            fail(of, assignment, "raised")
    assert failed(of) == 1
    assert of.error is None


@pytest.mark.parametrize(
    ("how", "written", "raised"),
    [
        ({"cause": "raised"}, 1, TrainingError),
        ({"cause": "raised", "trial": "a-3"}, 0, TrainingError),
        ({"cause": "memory", "trial": "a-3"}, 0, TrainingError),
        ({"clear": True}, 0, ExperimentError),
    ],
)
def test_the_first_exception_of_code_that_has_never_run_ends_the_sweep(
    how: dict[str, Any], written: int, raised: type
) -> None:
    """One trial is recorded, so that there is a command that repeats it."""
    rows: list[str] = []
    of, seen = dispatcher(
        [state("a"), state("b")], record=lambda _, outcome: rows.append(outcome.trial)
    )
    assignment = take(of)
    of.receive(assignment.over("failed", failure(**how)))
    assert of.next() is None
    assert rows == [assignment.pack.trials[0].id][:written]
    assert type(of.error) is raised
    if isinstance(of.error, TrainingError):
        trial = rows[0] if rows else "a-3"
        assert of.error.reproduce == f"batchscale trial --from {trial}"
    assert str(of.hopeless()) == str(of.error)
    assert not any(isinstance(event, Note) for event in seen)


def test_deaths_that_a_worker_group_has_counted_are_not_counted_again() -> None:
    of, _ = dispatcher([state("a", trials=1)])
    assignment = take(of)
    of.receive(assignment.over("failed", failure(cause="died", deaths=3)))
    assert failed(of) == 1
    assert of.next() is None
    assert isinstance(of.hopeless(), TrainingError)  # nothing but failures


def test_steps_beyond_a_death_clear_the_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are killed for other reasons: the trials train on, however often that is."""
    now = [0.0]
    monkeypatch.setattr(failures.time, "monotonic", lambda: now[0])
    of, _ = dispatcher([state("a", trials=1)])
    for number in range(1, 9):
        assignment = take(of)
        for step in (10 * number, 10 * number + 1):
            now[0] += 11
            train(of, assignment, step)
        fail(of, assignment, "died")
    assert failed(of) == 0


def test_memory_that_is_too_small_for_a_pack_bounds_the_next_ones() -> None:
    of, _ = dispatcher([state("a", trials=40)])
    sizes = []
    while isinstance(assignment := of.next(), Assignment):
        sizes.append(len(assignment.wanted))
        if len(assignment.wanted) > 4:
            fail(of, assignment, "memory")
        else:
            finish(of, assignment)
    assert sizes == [16, 8, 4, 4, 8, 4, 4, *[4] * 6]
    assert failed(of) == 0
