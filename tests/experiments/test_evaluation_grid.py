"""The evaluation grid is geometric and does not move with the budget."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from experiments.training.evaluation_grid import evaluation_steps, next_evaluation


@given(ratio=st.floats(1.001, 2), budget=st.integers(1, 20_000))
def test_the_grid_rises_geometrically_to_the_budget(ratio: float, budget: int) -> None:
    grid = evaluation_steps(ratio, budget)
    assert grid[0] == 1
    assert grid[-1] == budget
    for before, after in itertools.pairwise(grid):
        assert before < after <= max(before + 1, math.ceil(before * ratio))


@given(ratio=st.floats(1.01, 2), budget=st.integers(1, 5000), more=st.integers(1, 5000))
def test_raising_the_budget_moves_no_look(ratio: float, budget: int, more: int) -> None:
    assert (
        evaluation_steps(ratio, budget + more)[: len(evaluation_steps(ratio, budget)) - 1]
        == evaluation_steps(ratio, budget)[:-1]
    )


@given(ratio=st.floats(1.01, 2.0), budget=st.integers(1, 4000), step=st.integers(0, 3999))
def test_the_next_look_is_the_grids(ratio: float, budget: int, step: int) -> None:
    later = [look for look in evaluation_steps(ratio, budget) if look > step]
    assert next_evaluation(step, ratio, budget) == (later[0] if later else budget)


def test_about_one_look_every_five_percent() -> None:
    assert evaluation_steps(1.05, 30)[:22] == (*range(1, 22), 23)
    assert len(evaluation_steps(1.05, 65_000)) < 200
