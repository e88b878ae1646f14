"""When it is certain that a target is missed, although not all examples of a split were read.

The examples are read in one random order, so that what was read is a sample drawn without
replacement. A mean that is excluded with an error of less than 1e-9 is taken for excluded; what the
examples left over could never reach is excluded whatever they are.

- Values 0 and 1 (errors): the hypergeometric distribution, exact. Of ``total`` errors among all
  ``examples`` at least as many as were seen have a probability, and it grows with ``total``.
- Other values that are never negative (losses): a bet against the mean (Waudby-Smith and Ramdas
  2020, Estimating means of bounded random variables by betting, section 4). If the mean of all is
  ``m`` or less, a gambler who puts a share b of the money on each value x, and gets back
  1 - b + b·x / (the mean of those left if the mean is m), expects no gain, so that the money is
  ever 1e9 times what it was with a probability of at most 1e-9 (Ville's inequality). That asks
  nothing of the values but that they are not negative: however heavy their tail is, large values
  that were not read only make the mean larger.
- Values between 0 and 1 of which more is better (an accuracy): the same of 1 - x.
- Any others, negative or not finite: nothing is excluded, and all examples are read. So it is with
  metrics that are sums and counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from results.targets.target import Target

PROBABILITY = 1e-9
"""Of excluding a mean that is true, on each side."""
_SHARES = np.geomspace(0.01, 0.99, 12)
"""The shares of its money that the gambler bets; the money is divided among them."""
_BISECTIONS = 8

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What an evaluation that did not read all examples says of the whole split."""

    evaluated_examples: int
    interval_metric: str
    """The metric that the next three are about."""
    interval_low: float
    interval_high: float
    """Between these its mean over the whole split lies, each but for ``PROBABILITY``."""
    standard_error: float
    """Of its mean, drawn without replacement."""


class MissTest:
    """Collects a trial's values of the target's metric until a miss is certain."""

    def __init__(self, target: Target | None, examples: int) -> None:
        """
        Args:
            target: ``None``: all examples are read.
            examples: of the whole split.
        """
        self.target, self._examples = target, examples
        self._parts: list[Values] = []
        self._read = 0
        self.ended = False
        """Whether a miss is certain, or everything was read."""
        self.sample: Sample | None = None
        """Set where a miss was certain before the end."""

    def read(self, values: Values | None, count: int) -> None:
        """Take in the next values, ``count`` of them, in the order in which they were read.

        Args:
            values: ``None``: the metric has none of its own for each example.
        """
        if self.ended:
            return
        self._read += count
        self.ended = self._read == self._examples
        if self.ended or self.target is None or values is None:
            return
        self._parts.append(values)
        read = np.concatenate(self._parts)
        if not certain_miss(read, self._examples, self.target):
            return
        low, high = interval(read, self._examples, self.target)
        left = 1 - self._read / self._examples
        self.ended = True
        self.sample = Sample(
            evaluated_examples=self._read,
            interval_metric=self.target.metric,
            interval_low=low,
            interval_high=high,
            standard_error=float(read.std(ddof=1)) * math.sqrt(left / self._read),
        )


def certain_miss(values: Values, examples: int, target: Target) -> bool:
    """Whether the mean over all ``examples`` is not strictly better than ``target``.

    Args:
        values: of those that were read, at least one, in the order in which they were drawn.
    """
    if _are_binary(values):
        low, high = _share_of_errors(int(values.sum()), len(values), examples)
        return not target.hit(low if target.lower_is_better else high)
    if target.lower_is_better:
        bounded_below = (values >= 0).all() and np.isfinite(values).all()
        return bool(bounded_below) and excludes(values, examples, target.value)
    are_shares = bool(((values >= 0) & (values <= 1)).all())
    return are_shares and excludes(1 - values, examples, 1 - target.value)


def interval(values: Values, examples: int, target: Target) -> tuple[float, float]:
    """Between what the mean over all ``examples`` lies where a miss is certain (``certain_miss``),
    each end but for ``PROBABILITY``; infinite where nothing is known."""
    if _are_binary(values):
        return _share_of_errors(int(values.sum()), len(values), examples)
    if target.lower_is_better:  # a loss that was never above 1 may be
        return _least_mean(values, examples, target.value), math.inf
    high = 1 - _least_mean(1 - values, examples, 1 - target.value)
    return _least_mean(values, examples), high


def excludes(values: Values, examples: int, mean: float) -> bool:
    """Whether values that are never negative exclude that the mean of all is ``mean`` or less."""
    total = np.cumsum(values)
    left = examples * mean - total
    if (left < -1e-9 * abs(examples * mean)).any():
        return True
    expected = (left + values) / (examples - np.arange(len(values)))
    possible = expected > 0
    values, expected = values[possible], expected[possible]
    with np.errstate(over="ignore"):
        gains = np.log1p(_SHARES[:, None] * (values / expected - 1)).cumsum(axis=1)
    money = np.logaddexp.reduce(gains, axis=0) - math.log(len(_SHARES))
    return bool((money >= -math.log(PROBABILITY)).any())


def _least_mean(values: Values, examples: int, low: float = 0.0) -> float:
    """The largest mean that is excluded, nearly; ``low`` is known to be, or 0."""
    high = float(values.mean())
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if excludes(values, examples, middle) else (low, middle)
    return low


def _are_binary(values: Values) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def _share_of_errors(errors: int, read: int, examples: int) -> tuple[float, float]:
    """The least and the largest share of errors among all that is not excluded."""
    low = _most_excluded(errors, read, examples) + 1
    high = examples - (_most_excluded(read - errors, read, examples) + 1)
    return low / examples, high / examples


@lru_cache(maxsize=2**16)
def _most_excluded(errors: int, read: int, examples: int) -> int:
    """The largest number of errors among all ``examples`` for which at least ``errors`` among
    ``read`` have a probability below ``PROBABILITY``; at least ``errors`` - 1."""
    low, high = errors - 1, examples
    while high - low > 1:
        middle = (low + high) // 2
        if at_least(errors, read, middle, examples) < PROBABILITY:
            low = middle
        else:
            high = middle
    return low


def at_least(errors: int, read: int, total: int, examples: int) -> float:
    """The probability of at least ``errors`` errors among ``read`` of ``examples``, of which
    ``total`` are errors, drawn without replacement."""
    zeros, log = examples - total, _log_factorials(examples)
    x = np.arange(max(errors, read - zeros), min(read, total) + 1)
    ways = log[total] - log[x] - log[total - x] + log[zeros] - log[read - x] - log[zeros - read + x]
    return float(np.exp(ways - (log[examples] - log[read] - log[examples - read])).sum())


@lru_cache(maxsize=8)
def _log_factorials(largest: int) -> Values:
    """log 0! … log ``largest``!."""
    return np.concatenate([[0.0], np.log(np.arange(1, largest + 1)).cumsum()])
