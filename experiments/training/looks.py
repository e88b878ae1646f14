"""The evaluation grid: the steps at which a trial is measured.

A geometric grid, since a fixed interval is most of the answer at large batches. Its ratio is part
of a result's definition: finer looks find earlier lucky crossings.
"""

from __future__ import annotations

import math
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
