"""Which pack comes next, and what becomes of failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from experiments.errors import ExperimentError
from experiments.plan import Outcome
from experiments.records.snapshots import settings_hash
from experiments.scheduling import recovery
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.events import Event, Note, RoundFinished
from experiments.scheduling.failures import Cause, Failure, TrainingError
from experiments.scheduling.jobs import Ended, Job, PackEnd, SnapshotHeader, Started, Step
from experiments.scheduling.rounds import Record
from experiments.scheduling.study_state import StudyState
from tests.experiments.fakes import Plan, points, study


def state(name: str, batch_size: int = 64, **changes: Any) -> StudyState:
    of = study(id=name, batch_size=batch_size, **changes)
    return StudyState(plan=Plan(of, points(80, diverging=0)), columns={}, label=name)


def dispatcher(states: Sequence[StudyState], **options: Any) -> tuple[Dispatcher, list[Event]]:
    seen: list[Event] = []
    return Dispatcher(states, observer=seen.append, **options), seen


def take(of: Dispatcher) -> Job:
    job = of.next()
    assert isinstance(job, Job)
    return job


def outcome(trial: str, steps: int | None = 50) -> Outcome:
    return Outcome(
        trial=trial,
        status="COMPLETE",
        stop_reason="target" if steps else "budget",
        steps_run=steps or 100,
        examples_run=1,
        steps_to_target=steps,
    )


def finish(of: Dispatcher, job: Job, seconds: float = 1.0) -> None:
    of.receive(Started(pack=job.pack.id, engine="stacked"))
    ended = tuple(outcome(trial) for trial in sorted(job.wanted))
    of.receive(Ended(pack=job.pack.id, outcomes=ended, committed=True))
    of.receive(PackEnd(pack=job.pack.id, end="done", seconds=seconds))


def failure(
    where: str = "ValueError at my.py:7",
    *,
    clear: bool = False,
    trial: str | None = None,
    cause: Cause = "raised",
) -> Failure:
    return Failure(
        message="ValueError: no",
        hint=None,
        traceback="…",
        where=where,
        clear=clear,
        trial=trial,
        cause=cause,
    )


def names(jobs: Sequence[Job]) -> list[tuple[str, int, int]]:
    return [(job.pack.study.id, job.round, len(job.wanted)) for job in jobs]


def drive(of: Dispatcher) -> list[Job]:
    """Everything, one pack at a time."""
    jobs = []
    while isinstance(job := of.next(), Job):
        jobs.append(job)
        finish(of, job)
    return jobs


def test_breadth_first_and_the_longest_first() -> None:
    of, seen = dispatcher([state("a", 8), state("b", 512), state("c", 64)])
    assert names(drive(of)) == [
        ("a", 0, 16),  # the cheapest shows that this shape of study runs at all
        ("b", 0, 16),
        ("c", 0, 16),
        ("a", 1, 4),
        ("b", 1, 4),
        ("c", 1, 4),
    ]
    rounds = [(e.round, e.trials, e.reached) for e in seen if isinstance(e, RoundFinished)]
    assert rounds == [(0, 16, 3), (1, 20, 3)]
    assert of.next() is None
    assert of.trained == 60


def test_what_took_longest_goes_first_in_the_next_round() -> None:
    of, _ = dispatcher([state("a", 8), state("b", 512)])
    for seconds in (60.0, 3.0):
        finish(of, take(of), seconds)
    assert take(of).pack.study.id == "a"


def test_a_shape_runs_once_before_it_runs_at_once() -> None:
    of, _ = dispatcher([state("a", 8), state("b"), state("c", optimizer="adam")], slots=4)
    first, second = take(of), take(of)
    assert {first.pack.study.id, second.pack.study.id} == {"a", "c"}
    assert of.next() == "wait"
    of.receive(Step(pack=first.pack.id, step=25, steps=25, values=(0.5,)))
    assert take(of).pack.study.id == "b"


def test_a_wave_is_cut_to_occupy_all_workers() -> None:
    of, _ = dispatcher([state("a", trials=16)], slots=4)
    first = take(of)
    assert len(first.wanted) == 4
    assert of.next() == "wait"  # the study has no engine yet
    of.receive(Started(pack=first.pack.id, engine="stacked"))
    of.receive(Step(pack=first.pack.id, step=25, steps=25, values=(0.5,)))
    others = [take(of) for _ in range(3)]
    assert {job.pack.engine for job in others} == {"stacked"}
    assert of.next() == "wait"
    assert len({t for job in (first, *others) for t in job.wanted}) == 16


def test_packs_that_are_out_hear_what_others_find() -> None:
    of, _ = dispatcher([state("a", trials=16)], slots=2)
    told: list[tuple[str, tuple[int, ...]]] = []
    of.share = lambda pack, known: told.append((pack, known))
    first = take(of)
    of.receive(Started(pack=first.pack.id, engine="module"))
    of.receive(Step(pack=first.pack.id, step=25, steps=25, values=(0.5,)))
    second = take(of)
    done = outcome(min(first.wanted), 30)
    of.receive(Ended(pack=first.pack.id, outcomes=(done,), committed=False))
    assert told == []  # until it is safe
    of.receive(Ended(pack=first.pack.id, outcomes=(done,), committed=True))
    assert told == [(second.pack.id, (30,))]


def test_packs_that_are_out_hear_what_other_drivers_found() -> None:
    of, _ = dispatcher([state("a", trials=16)], pack_size=8)
    told: list[tuple[str, tuple[int, ...]]] = []
    of.share = lambda pack, known: told.append((pack, known))
    mine = take(of)
    assert not of.shares_with(mine.wanted)
    theirs = sorted({f"a-{i}" for i in range(16)} - mine.wanted)
    assert of.shares_with([*mine.wanted, *theirs])
    of.merge({"a": {theirs[0]: Record.of(outcome(theirs[0], 30))}}, theirs[1:])
    of.merge({"a": {theirs[0]: Record.of(outcome(theirs[0], 30))}}, theirs[1:])  # once is enough
    assert told == [(mine.pack.id, (30,))]


def test_later_packs_know_the_study() -> None:
    of, _ = dispatcher([state("a")])
    finish(of, take(of))
    assert take(of).pack.known == (50,) * 16


def test_what_others_train_waits_and_what_they_did_counts() -> None:
    of, _ = dispatcher([state("a", trials=16)])
    ids = [f"a-{i}" for i in range(16)]
    of.merge({}, ids[:10])
    assert of.shares_with([])
    mine = take(of)
    assert mine.wanted == set(ids[10:])
    finish(of, mine)
    assert of.next() == "wait"
    of.merge({"a": {trial: Record.of(outcome(trial)) for trial in ids[:10]}}, [])
    assert of.next() is None
    assert of.trained == 6


def test_a_pack_that_somebody_took_comes_back_when_it_is_free() -> None:
    of, _ = dispatcher([state("a", trials=16)])
    job = take(of)
    of.receive(PackEnd(pack=job.pack.id, end="taken"))
    assert of.next() == "wait"
    of.merge({}, [])
    assert take(of).wanted == job.wanted


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


def header(of: StudyState, trials: list[str], active: list[str]) -> SnapshotHeader:
    return SnapshotHeader(
        pack="kept",
        study=of.study.id,
        settings=settings_hash(of.study),
        trials=tuple(trials),
        active=tuple(active),
        engine="stacked",
        round=0,
    )


def test_a_snapshot_is_continued_as_it_was() -> None:
    one = state("a")
    ids = [f"a-{i}" for i in range(16)]
    for trial in ids[:3]:
        one.put(trial, Record.of(outcome(trial)))
    of, _ = dispatcher([one], resumable=[header(one, ids, ids[2:])])
    job = take(of)
    assert job.resumes
    assert job.pack.id == "kept"
    assert [t.id for t in job.pack.trials] == ids
    assert job.wanted == set(ids[3:])  # a-2 was recorded after the snapshot
    assert job.pack.known == ()  # its own results are in the snapshot
    assert job.pack.engine == "stacked"
    finish(of, job)
    assert not take(of).resumes


def test_a_snapshot_of_what_is_done_is_not() -> None:
    one = state("a", trials=16)
    ids = [f"a-{i}" for i in range(16)]
    for trial in ids:
        one.put(trial, Record.of(outcome(trial)))
    of, _ = dispatcher([one], resumable=[header(one, ids, ids[2:])])
    assert of.next() is None


def test_a_stop_hands_out_nothing() -> None:
    of, _ = dispatcher([state("a")])
    of.stop()
    assert of.next() is None
    assert of.finished


def test_a_round_may_stop_the_sweep() -> None:
    error = ExperimentError("no study has reached the target")
    of, _ = dispatcher([state("a")], on_round=lambda number: error if number == 0 else None)
    finish(of, take(of))
    assert of.next() is None
    assert of.error is error
