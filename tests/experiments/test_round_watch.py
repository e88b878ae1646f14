"""Rounds end in order, and a round is begun only if it fits the time left."""

from __future__ import annotations

from experiments.scheduling.events import Event, RoundFinished
from experiments.scheduling.round_watch import RoundWatch
from experiments.scheduling.rounds import Record
from experiments.scheduling.study_state import StudyState
from tests.experiments.fakes import Plan, points, study


def state(trials: int = 64) -> StudyState:
    plan = Plan(study(trials=trials, keep=None), points(4 * trials, diverging=0))
    return StudyState(plan=plan, columns={}, label="a")


def settle(of: StudyState) -> int:
    """Finish the open wave; how many trials it had."""
    wave = of.wave()
    assert wave is not None
    for trial in wave.trials:
        of.put(trial.id, Record(status="COMPLETE", stop_reason="budget", steps_run=100))
    return len(wave.trials)


def watch(of: StudyState, left: float | None, slots: int = 1) -> tuple[RoundWatch, list[Event]]:
    seen: list[Event] = []
    return RoundWatch(
        [of], slots=slots, observer=seen.append, on_round=lambda _: None, left=lambda: left
    ), seen


def test_rounds_are_told_of_once_and_in_order() -> None:
    of = state()
    rounds, seen = watch(of, None)
    for _ in range(3):
        settle(of)
        assert rounds.ended() is None
        assert rounds.ended() is None
    assert [(e.round, e.trials) for e in seen if isinstance(e, RoundFinished)] == [
        (0, 16),
        (1, 32),
        (2, 64),
    ]


def test_the_first_round_is_begun_whatever_the_time() -> None:
    rounds, _ = watch(state(), 0.0)
    assert rounds.fits(0)
    assert rounds.refused is None


def test_the_next_round_takes_as_long_a_trial_as_the_last() -> None:
    of = state()
    rounds, _ = watch(of, 30.0)
    assert rounds.fits(0)
    rounds.spent(0, 16.0, settle(of))  # a second a trial
    assert rounds.expected(1) == 16
    assert rounds.fits(1)
    rounds.spent(1, 16.0, settle(of))
    assert rounds.expected(2) == 32  # twice as many trials
    assert not rounds.fits(2)
    assert rounds.refused == 2
    assert rounds.fits(1)  # what is left of a round that was begun
    assert not rounds.fits(3)


def test_slots_share_a_round() -> None:
    of = state()
    rounds, _ = watch(of, 9.0, slots=2)
    rounds.spent(0, 16.0, settle(of))
    assert rounds.expected(1) == 8
    assert rounds.fits(1)


def test_without_a_limit_all_fits() -> None:
    of = state()
    rounds, _ = watch(of, None)
    rounds.spent(0, 1e9, settle(of))
    assert rounds.fits(1)
