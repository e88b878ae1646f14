"""How the best trials of a search scatter: the family that searches are simulated from.

Steps to target of a random point of the space, in d tuned dimensions, are

    T = S exp(h U^(2/d) + s e),     U uniform in (0, 1), e normal,

the tail about a smooth optimum (de Haan 1981, JASA 76:467) with *rise* h, and the *luck* s of a
seed. What a search tells of the two are log X(j)/X(1) for j = 2, 3, 4, means over its batch sizes:
each pair (h, s) of a grid is weighed by how well its simulated means agree with these. Where fewer
trials than four reached the target at a batch size, the X(4) of the others are small by selection:
only the j count that all batch sizes have.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BEST = 4
"""Order statistics of a search that are simulated: those that its interval rests on."""
_RISES, _LUCKS = np.geomspace(0.05, 25.0, 13), np.array([0, 0.03, 0.06, 0.1, 0.15, 0.22, 0.32, 0.5])
GRID: Array = np.array([(rise, luck) for rise in _RISES for luck in _LUCKS])
"""Pairs of rise and luck, (m, 2)."""
_SEARCHES = 200
"""Simulated searches of each pair."""
_MOST_HAVE = 0.75
_ROUNDING = 0.005
"""Least standard error of a mean gap: evaluations stand some per cent apart."""


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """What is known of one curve's scatter."""

    trials: int
    dimensions: int
    each: Array
    """log X(j)/X(1) of each batch size, j from 2 on, (n, at most 3)."""

    @classmethod
    def of(
        cls, order_statistics: Sequence[Sequence[float]], trials: int, dimensions: int
    ) -> Gaps | None:
        """From X(1) … X(r) of each batch size; None where more than a quarter of those that
        reached the target have no X(2), or none did."""
        hit = [each for each in order_statistics if len(each)]
        known = [each for each in hit if len(each) > 1]
        if not known or len(known) < _MOST_HAVE * len(hit):
            return None
        all_have = min(BEST, *(len(each) for each in known))
        logs = np.log(np.array([each[:all_have] for each in known]))
        return cls(trials=trials, dimensions=dimensions, each=logs[:, 1:] - logs[:, :1])

    @property
    def weights(self) -> Array:
        """Of the pairs of ``GRID``, sum 1; (m,)."""
        means, covariances = _table(self.trials, self.dimensions)
        number = self.each.shape[1]
        off = self.each.mean(0) - means[:, :number]
        errors = covariances[:, :number, :number] * (1 / len(self.each) + 1 / _SEARCHES)
        errors = errors + np.eye(number) * _ROUNDING**2
        squares = np.einsum("mi,mij,mj->m", off, np.linalg.inv(errors), off)
        logs = -0.5 * (squares + np.log(np.linalg.det(errors)))
        weights = np.exp(logs - logs.max())
        return np.asarray(weights / weights.sum())


def best(
    rng: np.random.Generator, shape: tuple[int, ...], trials: int, dimensions: int, pair: Any
) -> Array:
    """Log steps over S of the ``BEST`` best of ``trials`` of some searches, ascending; (…, 4).

    Args:
        pair: rise and luck.
    """
    rise, luck = pair
    luck_of_each = luck * rng.normal(size=(*shape, trials))
    rises = rng.random((*shape, trials)) ** (2 / dimensions) if dimensions else 0.0
    every = np.partition(rise * rises + luck_of_each, BEST - 1, axis=-1)
    return np.sort(every[..., :BEST], axis=-1)


@functools.cache
def _table(trials: int, dimensions: int) -> tuple[Array, Array]:
    """Means (m, 3) and covariances (m, 3, 3) of the gaps of each pair of ``GRID``."""
    number = BEST - 1
    means, covariances = np.empty((len(GRID), number)), np.empty((len(GRID), number, number))
    for place, pair in enumerate(GRID):
        rng = np.random.default_rng([trials, dimensions])
        simulated = best(rng, (_SEARCHES,), trials, dimensions, pair)
        gaps = simulated[:, 1:] - simulated[:, :1]
        means[place], covariances[place] = gaps.mean(0), np.cov(gaps.T)
    return means, covariances
