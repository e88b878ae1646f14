"""The edge check, in the unit interval of each scale."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analysis.curves.edges import edge, near_best


@pytest.mark.parametrize(
    ("space", "value", "side"),
    [
        ({"log": [1e-4, 10]}, 1e-4 * 10**0.2, "low"),
        ({"log": [1e-4, 10]}, 8.0, "high"),
        ({"log": [1e-4, 10]}, 0.03, None),
        ({"reverse_log": [0.5, 0.999]}, 0.51, "low"),
        ({"reverse_log": [0.5, 0.999]}, 0.9988, "high"),
        ({"reverse_log": [0.5, 0.999]}, 0.99, None),
        ({"linear": [1, 3]}, 1.05, "low"),
        ({"linear": [0, 3]}, 0.05, None),  # nothing lies below 0
        ({"integer": [1, 40]}, 40, "high"),
        ({"integer": [1, 3]}, 3, None),  # an end holds a third of the space
        ({"discrete": [1, 2, 3]}, 3, None),
        (0.9, 0.9, None),  # a fixed value
    ],
)
def test_sides(space: Any, value: float, side: str | None) -> None:
    found = edge(json.dumps({"x": space}), {"x": value})
    assert [one.side for one in found] == ([] if side is None else [side])


def test_a_near_best_trial_on_the_edge_is_told_from_the_best() -> None:
    space = {"learning_rate": {"log": [0.01, 1.0]}}
    best, others = {"learning_rate": 0.5}, [{"learning_rate": 0.99}]
    (found,) = edge(space, best, others)
    assert (found.verdict, found.side) == ("near", "high")
    assert found.text == "learning_rate at its upper end 1 (near-best)"
    (found,) = edge(space, others[0], [best])
    assert found.verdict == "edge"
    assert str(found) == found.text == "learning_rate at its upper end 1"


def test_shares_of_the_budget() -> None:
    space = {"decay": {"linear": [0.5, 1.0]}, "warmup": {"linear": [0, 0.2]}}
    resolved = {"decay_steps": 505, "warmup_steps": 198}
    found = edge(space, resolved, budget_steps=1000)
    assert [(one.dimension, one.side) for one in found] == [("decay", "low"), ("warmup", "high")]
    # A decay as long as the budget cannot be longer.
    assert edge(space, {"decay_steps": 1000, "warmup_steps": 100}, budget_steps=1000) == []
    # A length of a user's schedule is a share like any other.
    (upper_end,) = edge(
        {"stable": {"linear": [0.2, 0.6]}}, {"stable_steps": 598}, budget_steps=1000
    )
    assert (upper_end.dimension, upper_end.side) == ("stable", "high")


def test_near_best_is_within_a_tenth_best_first() -> None:
    rows = [{"x": i} for i in range(4)]
    assert near_best([110, 100, None, 111], rows) == [rows[1], rows[0]]
    assert near_best([None, float("nan")], rows[:2]) == []


def test_a_dimension_that_is_not_among_the_metaparameters_is_passed_over() -> None:
    assert edge({"momentum": {"linear": [0.1, 0.9]}}, {"learning_rate": 1}) == []
