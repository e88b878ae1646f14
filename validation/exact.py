"""The five quantities of any curve, computed from their definitions.

Nothing here knows of a form or a fit: the curve is a function, evaluated on a fine grid of the
tested range, and the definitions of docs/regimes.md are applied to its values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.fit.convex import Array

LogSteps = Callable[[Array], Array]
"""Log steps at log batch sizes, both (n,)."""

_FINE = 20_001
_TWO_DOUBLINGS = float(np.log(4.0))


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is true of a curve over its tested range, in natural logs."""

    quantities: dict[str, float]
    small_change: float
    """By how much log examples rise over the first two doublings; 0 where they are least further
    on, so that they rise on both sides."""
    large_change: float
    """By how much log steps fall over the last two; 0 where they are least before."""
    penalty: float
    """Log examples at the smallest batch size over the least."""
    rise: float
    """Log steps at the largest batch size over the least."""


def truth(steps: LogSteps, first: float, last: float, tolerance: float) -> Truth:
    """Of the curve tested from log batch size ``first`` to ``last``."""
    x = np.linspace(first, last, _FINE)
    s = steps(x)
    e = x + s
    cheap, quick = int(e.argmin()), int(s.argmin())
    over = float(np.log1p(tolerance))
    near, far = np.array([min(first + _TWO_DOUBLINGS, last)]), np.array([last - _TWO_DOUBLINGS])
    return Truth(
        quantities={
            "perfect_scaling_until": _last(x, e, float(e[cheap]) + over),
            "maximal_parallelism_from": -_last(-x[::-1], s[::-1], float(s[quick]) + over),
            "critical_batch_size": float(e[cheap] - s[quick]),
            "min_steps": float(s[quick]),
            "min_examples": float(e[cheap]),
        },
        small_change=0.0 if cheap > 0 else float((near + steps(near))[0] - e[0]),
        large_change=0.0 if quick < _FINE - 1 else float(steps(np.maximum(far, first))[0] - s[-1]),
        penalty=float(e[0] - e[cheap]),
        rise=float(s[-1] - s[quick]),
    )


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
