"""Evaluations that end after a part of the split, with the exact bounds for errors of 0 and 1."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.special import gammaln

EXAMPLES = 400
CHANCE = 1e-9
_SIZES = (25, 50, 100, 200)


@cache
def _bounds(drawn: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest number of errors among all examples, by the number among those
    ``drawn`` without replacement, that give so many or fewer (or more) by ``CHANCE`` at least."""

    def choose(n: np.ndarray | int, k: np.ndarray | int) -> Any:
        with np.errstate(invalid="ignore"):
            return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)

    wrong, seen = np.arange(EXAMPLES + 1)[:, None], np.arange(drawn + 1)
    logs = choose(wrong, seen) + choose(EXAMPLES - wrong, drawn - seen) - choose(EXAMPLES, drawn)
    possible = (seen <= wrong) & (drawn - seen <= EXAMPLES - wrong)
    chances = np.where(possible, np.exp(np.where(possible, logs, -np.inf)), 0.0)
    at_least = chances[:, ::-1].cumsum(axis=1)[:, ::-1]
    at_most = chances.cumsum(axis=1)
    low = (at_least > CHANCE).argmax(axis=0)
    return low, EXAMPLES - (at_most > CHANCE)[::-1].argmax(axis=0)


def evaluated(random: np.random.Generator, wrong: int, target: float) -> dict[str, Any]:
    """Columns of a measurement of a model with ``wrong`` errors, until it is certain that its error
    is not below ``target``."""
    order = random.permutation(np.arange(EXAMPLES) < wrong)
    for drawn in _SIZES:
        seen = int(order[:drawn].sum())
        low, high = (bound[seen] / EXAMPLES for bound in _bounds(drawn))
        if low >= target:
            rate = seen / drawn
            variance = rate * (1 - rate) / (drawn - 1) * (1 - drawn / EXAMPLES)
            return partial(rate, low, high, examples=drawn, error=variance**0.5)
    return {"metrics": {"validation_error": wrong / EXAMPLES}}


def partial(
    mean: float,
    low: float | None,
    high: float | None,
    *,
    about: str = "validation_error",
    examples: int = 100,
    error: float | None = None,
    metric: str = "validation_error",
) -> dict[str, Any]:
    """Columns of a measurement that ended after ``examples``."""
    return {
        "metrics": {metric: mean},
        "evaluated_examples": examples,
        "interval_metric": about,
        "interval_low": low,
        "interval_high": high,
        "standard_error": error,
    }


def whole(value: float, metric: str = "validation_error") -> dict[str, Any]:
    return {"metrics": {metric: value}}
