"""When a trial first reached its target, read row by row: the slow twin of
``Evaluations.brackets``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from results.targets.target import Target


def bracket(rows: Iterable[Mapping[str, Any]], target: Target) -> tuple[float, float, int, bool]:
    """The first certain hit (NaN if none), the last miss before all that may be hits, how many
    before the first may be, and whether there is a value, from the measurements of one trial."""
    hit, miss, undecided, known, opened = math.nan, 0.0, 0, False, False
    for row in sorted(rows, key=lambda row: row["step"]):
        cells = row.get("metrics") or {}
        value = _number(cells.get(target.metric, row.get(target.metric)), math.nan)
        if math.isnan(value):
            continue
        known = True
        low = high = value
        if row.get("interval_metric") is not None:
            about = row["interval_metric"] == target.metric
            low = _number(row.get("interval_low") if about else None, -math.inf)
            high = _number(row.get("interval_high") if about else None, math.inf)
        best, worst = (low, high) if target.lower_is_better else (high, low)
        if target.hit(worst):
            hit = float(row["step"])
            break
        opened = opened or target.hit(best)
        undecided += target.hit(best)
        miss = miss if opened else float(row["step"])
    return hit, math.nan if math.isnan(hit) else miss, undecided, known


def _number(cell: Any, missing: float) -> float:
    return missing if cell is None or math.isnan(float(cell)) else float(cell)
