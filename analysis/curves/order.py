"""Order statistics of steps to target, and the error bar of a single best-of-N point."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite

BAR = 4
"""The order statistic that the error bar of a point rests on."""


def order_statistic(values: Iterable[float | None], r: int) -> float | None:
    """X(r), the ``r``-th smallest of the steps to target; missing ones (None, NaN) are infinite.

    Returns None when fewer than ``r`` trials reached the target.

    Raises:
        ValueError: ``r`` is below 1.
    """
    if r < 1:
        raise ValueError(f"there is no order statistic {r}: the smallest is 1")
    known = sorted(float(value) for value in values if value is not None and isfinite(value))
    return known[r - 1] if len(known) >= r else None


def last_exact(values: Iterable[float | None], keep: int | None) -> float:
    """X(keep), the largest steps to target that dominated stopping leaves exact; infinite when it
    was off (``keep`` is None) or never set in. Later ones depend on the order of training, so
    that every statistic censors again here."""
    if keep is None:
        return inf
    found = order_statistic(values, keep)
    return inf if found is None else found


def error_bar(first: float | None, fourth: float | None) -> tuple[float, float] | None:
    """The error bar of a best of N, in steps: from X(1)² / X(4) to X(4).

    In log steps it reaches as far below X(1) as X(4) lies above. With fewer than four hits
    (``fourth`` is None) its upper end is infinite, and nothing is known of its lower one: it is
    put at X(1). None without a hit.
    """
    if first is None:
        return None
    if fourth is None:
        return first, inf
    return first * first / fourth, fourth
