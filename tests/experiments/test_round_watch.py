"""Rounds end in order, and a round is begun only if it fits the time left."""

from __future__ import annotations

import pytest

from tests.experiments.test_dispatch import dispatcher, drive, state


@pytest.mark.parametrize(
    ("left", "slots", "refused", "begun"),
    [
        (0.0, 1, 1, [("a", 0), ("b", 0)]),  # the first round, whatever the time
        (20.0, 1, 1, [("a", 0), ("b", 0)]),  # 32 trials, each a second
        (40.0, 1, 2, [("a", 0), ("b", 0), ("a", 1), ("b", 1)]),  # 48, and twice 16 before
        (25.0, 2, None, [(name, n) for n in (0, 1, 2, 2) for name in "ab"]),
        (None, 1, None, [(name, n) for n in (0, 1, 2, 2) for name in "ab"]),
    ],
)
def test_a_trial_of_the_next_round_takes_what_those_of_its_study_took(
    left: float | None, slots: int, refused: int | None, begun: list[tuple[str, int]]
) -> None:
    """What is left of a round that was begun is trained, whatever is refused."""
    states = [state(name, trials=64, keep=None) for name in "ab"]
    of, _ = dispatcher(states, slots=slots, pack_size=16, left=lambda: left)
    assert sorted((job.pack.study.id, job.round) for job in drive(of)) == sorted(begun)
    assert of.refused == refused
