"""The evaluation grid: the steps at which a trial is measured.

A geometric grid, since a fixed interval is most of the answer at large batches. Its ratio is part
of a result's definition: finer looks find earlier lucky crossings.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import cache


@cache
def looks(ratio: float, budget_steps: int) -> tuple[int, ...]:
    """Steps 1 … ``budget_steps``: each the last times ``ratio`` rounded up, and the budget.

    Without the budget the grid does not depend on it: raising the budget adds looks at the end.
    """
    steps, step = [], 1
    while step < budget_steps:
        steps.append(step)
        step = max(step + 1, math.ceil(step * ratio))
    return (*steps, budget_steps)


def count(ratio: float, budget_steps: int) -> float:
    """About how many looks there are; of a ratio next to 1, which has as many as steps, at once."""
    single = min(1 / (ratio - 1), budget_steps)
    """Steps that the ratio takes one by one."""
    return single + math.log(budget_steps / single) / math.log(ratio)


def next_evaluation(step: int, ratio: float, budget_steps: int) -> int:
    """The first look later than ``step``; the budget, if there is none."""
    grid = looks(ratio, budget_steps)
    return grid[min(bisect_right(grid, step), len(grid) - 1)]


def bracket(last_miss: int, hit: int, ratio: float) -> tuple[int, ...]:
    """Finer looks strictly between two looks: from ``last_miss``, each the last times ``ratio``.

    Never closer than one step. ``hit`` itself is the last of the finer grid, and is known.
    """
    steps, step = [], max(last_miss + 1, math.ceil(last_miss * ratio))
    while step < hit:
        steps.append(step)
        step = max(step + 1, math.ceil(step * ratio))
    return tuple(steps)
