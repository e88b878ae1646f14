"""The evaluation grid: the steps at which a trial is measured.

The grid is geometric, since a fixed interval would be a large part of the steps at large batches.
Its ratio is part of a result's definition: finer evaluations find earlier chance hits.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import cache


@cache
def evaluation_steps(ratio: float, budget_steps: int) -> tuple[int, ...]:
    """Steps 1 … ``budget_steps``: each the last times ``ratio`` rounded up, and the budget.

    Without the budget the grid does not depend on it: raising the budget adds steps at the end.
    """
    steps, step = [], 1
    while step < budget_steps:
        steps.append(step)
        step = max(step + 1, math.ceil(step * ratio))
    return (*steps, budget_steps)


def count(ratio: float, budget_steps: int) -> float:
    """About how many evaluations there are, without making the grid: for a ratio next to 1 it has
    nearly as many as steps."""
    single = min(1 / (ratio - 1), budget_steps)
    """Up to this step the ratio advances by single steps."""
    return single + math.log(budget_steps / single) / math.log(ratio)


def next_evaluation(step: int, ratio: float, budget_steps: int) -> int:
    """The first evaluation later than ``step``; the budget, if there is none."""
    grid = evaluation_steps(ratio, budget_steps)
    return grid[min(bisect_right(grid, step), len(grid) - 1)]
