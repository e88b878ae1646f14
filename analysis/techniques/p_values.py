"""The p-value of "the ratio is 1": the level of the interval of the ratio that just reaches 1.

A curve's interval at any level follows from its one fit (``analysis.fit.locate``), and the interval
of a ratio from those of two curves at the same level (``analysis.fit.comparisons``), so that p is
below 0.1 where the interval at 90 % leaves out 1. Between levels log p is interpolated.

A level at which the interval is open on the side of 1 holds 1: p is then that of the level before,
and rather too large. The least is the last of ``P_VALUES``, which stands for anything smaller.
"""

from __future__ import annotations

import numpy as np

from analysis.fit.comparisons import Ends, log_ratio
from analysis.fit.convex import Array

P_VALUES = (
    *(0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.02, 0.01),
    *(0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001),
)
LEVELS = tuple(1 - p for p in P_VALUES)
"""Where intervals are computed."""


def p_value(first: Ends, second: Ends) -> float | None:
    """Of "``first`` equals ``second``", each at ``LEVELS`` (``comparisons.Pair.ends``); None where
    their ratio is open at both ends at every level."""
    middle, low, high = log_ratio(first, second)
    if not np.isfinite(np.concatenate([low, high])).any():
        return None
    known = np.isfinite(middle[0])  # else there are bounds alone
    nearer = low if (middle[0] if known else low[0]) > 0 else -high
    return _level_at_1(np.array([abs(middle[0]) if known else np.inf, *nearer]))


def _level_at_1(distances: Array) -> float:
    """p, from the distance of 1 to the nearer end of the interval at level 0 and at each of
    ``LEVELS``, (1 + L,): positive where the interval leaves out 1."""
    p_values = np.array([1.0, *P_VALUES])
    holds = np.flatnonzero(~(distances > 0))
    if not len(holds):
        return float(p_values[-1])
    at = int(holds[0])
    before, after = distances[max(at - 1, 0)], distances[at]
    if at == 0 or not np.isfinite([before, after]).all():
        return float(p_values[max(at - 1, 0)])
    share = before / (before - after)
    return float(p_values[at - 1] * (p_values[at] / p_values[at - 1]) ** share)
