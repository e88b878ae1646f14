"""The five quantities of any curve, computed from their definitions.

Nothing here knows of a knee: the curve is a function, evaluated on a fine grid far beyond the
tested batch sizes, and the definitions of docs/regimes.md are applied to its values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from analysis.fit.convex import Array

LogSteps = Callable[[Array], Array]
"""Log steps at log batch sizes, both (n,)."""

_FAR = float(np.log(1e9))
_FINE = 200_001
_LEVEL = 1e-3
"""A log-log slope below this counts as zero."""


def quantities(
    steps: LogSteps, first: float, last: float, tolerance: float, *, far: float = _FAR
) -> dict[str, float]:
    """The quantities in natural logs, tested from log batch size ``first`` to ``last``.

    S_min and E_min are the least steps and the least examples anywhere from ``far`` below to
    ``far`` above the tested ones. Where S still falls there it has no least value: min_steps is
    -inf, and maximal parallelism begins at +inf. Where E still falls towards small batch sizes
    nothing scales perfectly: perfect_scaling_until is -inf, and min_examples is the least E over
    the tested ones. The critical batch size is where the straight line that log S comes from (at
    ``far`` below) meets log S_min; neither regime goes beyond it, even if the knee is very sharp.
    """
    x = np.linspace(first - far, last + far, _FINE)
    s = steps(x)
    e = x + s
    inside = np.linspace(first, last, _FINE)
    yardstick = float((inside + steps(inside)).min())
    over = float(np.log1p(tolerance))
    slope = float((s[0] - s[1]) / (x[1] - x[0]))
    least = float(s.min())
    perfect = slope >= 1.0 - _LEVEL
    flat = s[-2] - s[-1] <= _LEVEL * (x[1] - x[0])
    critical = float(x[0]) + (float(s[0]) - least) / slope
    until = _last(x, e, yardstick + over)
    since = -_last(-x[::-1], s[::-1], least + over)
    return {
        "perfect_scaling_until": min(until, critical) if perfect else -np.inf,
        "maximal_parallelism_from": max(since, critical) if flat else np.inf,
        "critical_batch_size": critical if flat else np.inf,
        "min_steps": least if flat else -np.inf,
        "min_examples": float(e.min()) if perfect else yardstick,
    }


def _last(x: Array, y: Array, most: float) -> float:
    """The largest x at which y is at most ``most``, y being straight between its points."""
    at = int(np.flatnonzero(y <= most)[-1])
    if at == len(x) - 1:
        return float(x[at])
    part = (most - y[at]) / (y[at + 1] - y[at])
    return float(x[at] + part * (x[at + 1] - x[at]))


def between(x: Array, y: Array, *, small: float = -1.0, large: float = 0.0) -> LogSteps:
    """A curve through points (ascending, (n,)): a monotone cubic between them (PCHIP, Fritsch &
    Carlson 1980), and beyond them straight lines of slopes ``small`` and ``large``."""
    from scipy.interpolate import PchipInterpolator

    inner = PchipInterpolator(x, y)

    def steps(at: Array) -> Array:
        below, above = np.minimum(at - x[0], 0.0), np.maximum(at - x[-1], 0.0)
        return np.asarray(inner(np.clip(at, x[0], x[-1])) + small * below + large * above)

    return steps
