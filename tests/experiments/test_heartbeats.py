"""How far apart the heartbeats of a training are."""

from __future__ import annotations

from experiments.training.clock import next_chunk
from tests.problems import outcomes, study, train, trials


def test_the_next_heartbeat_is_a_second_away_or_eight_times_as_many_steps() -> None:
    assert next_chunk(10, 0.5) == 20
    assert next_chunk(10, 1e-9) == 80
    assert next_chunk(10, 0.0) == 80
    assert next_chunk(10, 100.0) == 1


def test_hundreds_of_evaluations_close_together_are_followed_by_others() -> None:
    """The steps between two of them are what a chunk is reckoned from, not a chunk that none of
    them has let happen, which would grow beyond all numbers."""
    of = study(budget_steps=450, evaluation_ratio=1.0001, stop_at_target=False, keep=None)
    pack = trials(of, 1)
    (outcome,) = outcomes(train(of, pack)).values()
    assert outcome.steps_run == 450
