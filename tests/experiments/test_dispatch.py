"""Which pack comes next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.errors import ExperimentError
from experiments.plan import Outcome
from experiments.records.snapshots import settings_hash
from experiments.scheduling.dispatch import Dispatcher
from experiments.scheduling.messages import Assignment, Event, Failure, Round, SnapshotHeader, Taken
from experiments.scheduling.rounds import Record
from experiments.scheduling.study_state import StudyState
from tests.experiments.fakes import listed, points, study


def state(name: str, batch_size: int = 64, **changes: Any) -> StudyState:
    of = study(id=name, batch_size=batch_size, **changes)
    return StudyState(study=listed(of, points(80, diverging=0)), columns={}, label=name)


def dispatcher(states: Sequence[StudyState], **options: Any) -> tuple[Dispatcher, list[Event]]:
    seen: list[Event] = []
    return Dispatcher(states, observer=seen.append, **options), seen


def take(of: Dispatcher) -> Assignment:
    assignment = of.next()
    assert isinstance(assignment, Assignment)
    return assignment


def outcome(trial: str, steps: int | None = 50, seconds: float = 0.0) -> Outcome:
    return Outcome(
        trial=trial,
        status="COMPLETE",
        stop_reason="target" if steps else "budget",
        steps_run=steps or 100,
        examples_run=1,
        steps_to_target=steps,
        train_seconds=seconds,
    )


def finish(of: Dispatcher, assignment: Assignment, seconds: float = 16.0) -> None:
    of.receive(assignment.begun("stacked"))
    ended = [outcome(trial, seconds=seconds) for trial in sorted(assignment.wanted)]
    of.receive(assignment.ended(ended, "run"))
    of.receive(assignment.over("done"))


def train(of: Dispatcher, assignment: Assignment, step: int = 25) -> None:
    """A pack begins, and comes to a step."""
    of.receive(assignment.begun("stacked"))
    of.receive(assignment.progress(step, step, (0.5,)))


def failure(clear: bool = False, **of: Any) -> Failure:
    return Failure(message="ValueError: no", hint=None, traceback="…", clear=clear, **of)


def drive(of: Dispatcher) -> list[Assignment]:
    """Everything, one pack at a time."""
    assignments = []
    while isinstance(assignment := of.next(), Assignment):
        assignments.append(assignment)
        finish(of, assignment)
    return assignments


def test_breadth_first_and_the_longest_first() -> None:
    of, seen = dispatcher([state("a", 8), state("b", 512), state("c", 64)])
    assert [(each.pack.study.id, each.round, len(each.wanted)) for each in drive(of)] == [
        ("a", 0, 16),  # the cheapest shows that this shape of study runs at all
        ("b", 0, 16),
        ("c", 0, 16),
        ("a", 1, 4),
        ("b", 1, 4),
        ("c", 1, 4),
    ]
    rounds = [(e.round, e.trials, e.reached) for e in seen if isinstance(e, Round)]
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
    train(of, first)
    assert take(of).pack.study.id == "b"


def test_a_wave_is_cut_to_occupy_all_workers() -> None:
    of, _ = dispatcher([state("a", trials=16)], slots=4)
    first = take(of)
    assert len(first.wanted) == 4
    assert of.next() == "wait"  # the study has no engine yet
    train(of, first)
    others = [take(of) for _ in range(3)]
    assert {assignment.pack.engine for assignment in others} == {"stacked"}
    assert of.next() == "wait"
    assert len({t for assignment in (first, *others) for t in assignment.wanted}) == 16


def test_packs_that_are_out_hear_what_others_find() -> None:
    of, _ = dispatcher([state("a", trials=16)], slots=2)
    first = take(of)
    train(of, first)
    second = take(of)
    done = outcome(min(first.wanted), 30)
    of.receive(first.ended([done]))
    assert of.news() == []  # until it is safe
    of.receive(first.ended([done], "run"))
    (news,) = of.news()
    assert (news.pack.id, news.hits, news.pack.trials) == (second.pack.id, (30,), ())
    assert of.assigned(second).hits == (30,)
    assert of.news() == []


def test_packs_that_are_out_hear_what_other_drivers_found() -> None:
    of, _ = dispatcher([state("a", trials=16)], pack_size=8)
    mine = take(of)
    assert not of.shares_with(mine.wanted)
    theirs = sorted({f"a-{i}" for i in range(16)} - mine.wanted)
    assert of.shares_with([*mine.wanted, *theirs])
    of.merge({"a": {theirs[0]: Record.of(outcome(theirs[0], 30))}}, theirs[1:])
    of.merge({"a": {theirs[0]: Record.of(outcome(theirs[0], 30))}}, theirs[1:])  # once is enough
    assert of.assigned(mine).hits == (30,)


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
    assignment = take(of)
    of.receive(assignment.over("taken"))
    assert of.next() == "wait"
    of.merge({}, [])
    assert take(of).wanted == assignment.wanted


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
    assignment = take(of)
    assert assignment.pack.id == "kept"
    assert [t.id for t in assignment.pack.trials] == ids
    assert assignment.wanted == set(ids[3:])  # a-2 was recorded after the snapshot
    assert assignment.pack.known == ()  # its own results are in the snapshot
    assert assignment.pack.engine == "stacked"
    finish(of, assignment)
    assert take(of).pack.id != "kept"


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


def test_trials_join_in_the_place_of_those_that_have_ended() -> None:
    of, _ = dispatcher([state("a", trials=16)], pack_size=8)
    first = take(of)
    train(of, first)
    ended = sorted(first.wanted)
    of.receive(first.ended([outcome(ended[0])]))
    (news,) = of.news()
    (joined,) = news.pack.trials
    assert joined.id not in first.wanted
    assert of.assigned(first).pack.trials == (*first.pack.trials, joined)
    of.receive(Taken(pack=first.pack.id, trials=(joined.id,)))  # another driver has it
    of.merge({}, [])  # and has given it up
    of.receive(first.ended([outcome(ended[1])]))
    again = of.assigned(first)
    assert len({trial.id for trial in again.pack.trials}) == len(again.pack.trials) == 11
    assert joined.id not in again.wanted
    of.receive(first.over("done"))
    drive(of)
    assert of.trained == 16
