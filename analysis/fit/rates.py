"""The best learning rates of a curve, and the rules that are held against them."""

from __future__ import annotations

import numpy as np

from analysis.curves.curve import Curve
from analysis.fit.knee import Array
from analysis.fit.regimes import Regimes

LINEAR, SQUARE_ROOT = 1.0, 0.5
"""Powers of the batch size that the two rules are."""


def best_rates(curve: Curve) -> tuple[Array, Array]:
    """Batch sizes and best rates, (n,) each."""
    pairs = [(point.batch_size, point.rates[0]) for point in curve.points if point.rates]
    both = np.array(pairs, dtype=float).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def level(curve: Curve, found: Regimes | None, power: float) -> float:
    """The rate at batch size 1 of a rule of this power; NaN without any rate.

    The mean of log rate - power · log batch size, over the batch sizes up to the critical one (all
    where none is known, or fewer than two lie there).
    """
    sizes, rates = best_rates(curve)
    if not len(sizes):
        return float("nan")
    critical = found.critical_batch_size.value if found else None
    within = sizes <= critical if critical is not None else np.full(len(sizes), True)
    within = within if within.sum() >= 2 else np.full(len(sizes), True)
    return float(np.exp((np.log(rates) - power * np.log(sizes))[within].mean()))
