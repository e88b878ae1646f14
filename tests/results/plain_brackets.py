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
        value = _value(row, target.metric)
        if value is None:
            continue
        known = True
        low = high = value
        if row.get("interval_metric") is not None:
            bounds = [row.get("interval_low"), row.get("interval_high")]
            if row["interval_metric"] != target.metric:
                bounds = [None, None]
            low = -math.inf if _missing(bounds[0]) else bounds[0]
            high = math.inf if _missing(bounds[1]) else bounds[1]
        best, worst = (low, high) if target.lower_is_better else (high, low)
        if target.hit(worst):
            hit = float(row["step"])
            break
        opened = opened or target.hit(best)
        undecided += target.hit(best)
        miss = miss if opened else float(row["step"])
    return hit, math.nan if math.isnan(hit) else miss, undecided, known


def _value(row: Mapping[str, Any], metric: str) -> float | None:
    value = (row.get("metrics") or {}).get(metric, row.get(metric))
    return None if _missing(value) else float(value)


def _missing(value: Any) -> bool:
    return value is None or math.isnan(float(value))
