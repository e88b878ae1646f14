"""What becomes of the trials of packs that fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.errors import ExperimentError
from experiments.plan import Outcome
from experiments.scheduling import recovery
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.events import Note
from experiments.scheduling.failures import Cause, TrainingError
from experiments.scheduling.jobs import Ended, Job, PackEnd, Step
from tests.experiments.test_dispatch import dispatcher, drive, failure, finish, state, take


def fail(of: Dispatcher, job: Job, cause: Cause, *, known: bool = False) -> None:
    """A pack ends; where its trial is known, or it is alone and has raised, it is recorded."""
    trial = min(job.wanted) if known or (len(job.wanted) == 1 and cause == "raised") else None
    if trial is not None:
        ended = Outcome(
            trial=trial, status="INCOMPLETE", stop_reason="error", steps_run=3, examples_run=1
        )
        of.receive(Ended(pack=job.pack.id, outcomes=(ended,), committed=True))
    end = failure(trial=trial, cause=cause)
    of.receive(PackEnd(pack=job.pack.id, end="failed", failure=end))


def until_isolated(of: Dispatcher, culprit: str, cause: Cause) -> tuple[int, list[Job]]:
    """Train all; each pack with the culprit fails. How often that happened, and the packs."""
    failures, jobs = 0, []
    while isinstance(job := of.next(), Job):
        jobs.append(job)
        if culprit in job.wanted:
            failures += 1
            fail(of, job, cause)
        else:
            finish(of, job)
    return failures, jobs


@pytest.mark.parametrize("cause", ["raised", "memory", "hung", "died"])
@pytest.mark.parametrize("culprit", ["b-0", "b-6", "b-15"])
def test_a_failed_pack_is_bisected(cause: Cause, culprit: str) -> None:
    """1 + log2(16) failures isolate the trial that is the cause; the others are trained."""
    rows: list[str] = []
    of, seen = dispatcher(
        [state("a", trials=16), state("b", trials=16)],
        record=lambda _, outcome: rows.append(outcome.trial),
    )
    first = take(of)
    assert culprit not in first.wanted
    finish(of, first)
    failures, jobs = until_isolated(of, culprit, cause)
    assert failures == 5
    assert rows == ([culprit] if cause in ("died", "hung", "memory") else [])
    assert of.failed == 1
    trained = [trial for job in jobs for trial in job.wanted if trial != culprit]
    last = {trial: job for job in jobs for trial in job.wanted}
    assert set(trained) == {f"b-{i}" for i in range(16)} - {culprit}
    assert all(culprit not in last[trial].wanted for trial in trained)
    assert of.error is None
    assert of.hopeless() is None
    assert any(isinstance(event, Note) for event in seen)


def test_bisection_among_trials_that_have_not_ended_stops_nothing() -> None:
    of, _ = dispatcher([state("a", trials=16)], slots=16, pack_size=16)
    first = take(of)
    culprit = first.pack.trials[0].id
    of.receive(Step(pack=first.pack.id, step=25, steps=25, values=(0.5,)))
    fail(of, first, "raised")
    while isinstance(job := of.next(), Job):
        if culprit in job.wanted:
            fail(of, job, "raised")
    assert of.failed == 1
    assert of.error is None


def test_a_pack_whose_failed_trial_is_recorded_goes_on_without_it() -> None:
    of, _ = dispatcher([state("a", trials=16), state("b", trials=16)])
    finish(of, take(of))
    job = take(of)
    fail(of, job, "raised", known=True)
    assert take(of).wanted == job.wanted - {min(job.wanted)}


def test_code_that_has_never_trained_is_tried_trial_by_trial() -> None:
    of, _ = dispatcher([state("a", trials=16)])
    fail(of, take(of), "raised")
    assert [len(job.wanted) for job in drive(of)] == [1] * 16
    assert of.failed == 0


def test_a_lost_node_says_nothing_of_the_trials() -> None:
    of, _ = dispatcher([state("a", trials=16)])
    job = take(of)
    for _ in range(4):
        fail(of, job, "lost")
        assert take(of).wanted == job.wanted
    finish(of, job)
    assert of.failed == 0


def test_a_trial_alone_may_lose_its_worker_twice() -> None:
    of, _ = dispatcher([state("a", trials=1)])
    for number in range(3):
        assert of.failed == 0, number
        fail(of, take(of), "died")
    assert of.failed == 1
    assert of.next() is None


def test_deaths_that_a_worker_group_has_counted_are_not_counted_again() -> None:
    of, _ = dispatcher([state("a", trials=1)])
    job = take(of)
    died = replace(failure(cause="died"), deaths=3)
    of.receive(PackEnd(pack=job.pack.id, end="failed", failure=died))
    assert of.failed == 1
    assert of.next() is None


def test_steps_beyond_a_death_clear_the_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are killed for other reasons: the trials train on, however often that is."""
    now = [0.0]
    monkeypatch.setattr(recovery.time, "monotonic", lambda: now[0])
    of, _ = dispatcher([state("a", trials=1)])
    for number in range(1, 9):
        job = take(of)
        for step in (10 * number, 10 * number + 1):
            now[0] += 11
            of.receive(Step(pack=job.pack.id, step=step, steps=step, values=(0.5,)))
        fail(of, job, "died")
    assert of.failed == 0


def test_memory_that_is_too_small_for_a_pack_bounds_the_next_ones() -> None:
    of, _ = dispatcher([state("a", trials=40)])
    sizes = []
    while isinstance(job := of.next(), Job):
        sizes.append(len(job.wanted))
        if len(job.wanted) > 4:
            fail(of, job, "memory")
        else:
            finish(of, job)
    assert sizes == [16, 8, 8, *[4] * 4, *[4] * 6]
    assert of.failed == 0


def test_the_same_exception_in_the_first_three_packs_stops_all() -> None:
    of, _ = dispatcher([state("a"), state("b")])
    for _ in range(3):
        assert of.error is None
        job = take(of)
        of.receive(PackEnd(pack=job.pack.id, end="failed", failure=failure(trial=min(job.wanted))))
    assert isinstance(of.error, TrainingError)
    assert of.error.reproduce is not None
    assert of.error.reproduce.startswith("batchscale trial --from a-")
    assert of.next() is None


def test_different_exceptions_do_not() -> None:
    of, _ = dispatcher([state("a"), state("b")])
    for number in range(6):
        job = take(of)
        of.receive(PackEnd(pack=job.pack.id, end="failed", failure=failure(f"at {number}")))
    assert of.error is None


def test_a_clear_error_stops_at_once() -> None:
    of, _ = dispatcher([state("a"), state("b")])
    finish(of, take(of))
    job = take(of)
    of.receive(PackEnd(pack=job.pack.id, end="failed", failure=failure(clear=True)))
    assert type(of.error) is ExperimentError


def test_nothing_but_failures_is_an_error_in_the_end() -> None:
    of, _ = dispatcher([state("a", trials=1)])
    fail(of, take(of), "raised")
    assert of.next() is None
    assert isinstance(of.hopeless(), TrainingError)
    assert of.failed == 1
