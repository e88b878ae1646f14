"""The best configuration trained again with fresh seeds: what its minimum owes to luck.

The least of N trials is the least over N seeds too, so it lies below what its configuration
usually takes. Its repeats were not selected: their median has no such bias.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.curves.edges import parameters
from analysis.curves.runs import Rows, Runs
from results.counts import count

LEVEL = 0.9
"""Coverage of the median's interval where there are enough repeats for it."""


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Runs of one configuration. Steps are steps to target, infinite where it was not reached."""

    steps: tuple[float, ...]
    """Each run's, ascending."""

    @property
    def median(self) -> float | None:
        """Their median; None where half of them or more never reached the target."""
        middle = float(np.median(self.steps)) if self.steps else math.inf
        return middle if math.isfinite(middle) else None

    @property
    def interval(self) -> tuple[float, float]:
        """From the k-th smallest to the k-th largest run: for any distribution the median of the
        configuration's runs lies between with the probability ``level``."""
        k = _rank(len(self.steps))
        return self.steps[k - 1], self.steps[-k]

    @property
    def level(self) -> float:
        """Coverage of ``interval``: 1 - 2 P(Binomial(n, 1/2) < k), at least ``LEVEL`` from five
        runs on; below, that of the least and the most."""
        return _coverage(len(self.steps), _rank(len(self.steps)))


def of_best(
    runs: Runs, rows: Rows, best: Mapping[str, Any], study: Any
) -> tuple[Repeats | None, int]:
    """The repeats among ``rows`` whose study and metaparameters are those of the best trial, and
    how many there are of other configurations.

    A repeat that diverged never reached the target; one that broke off says nothing.
    """
    rows = rows[runs.ended[rows] & ~runs.dominated[rows]]
    same = [
        runs.rows["study"][row] == study and parameters(runs.rows["metaparameters"][row]) == best
        for row in rows
    ]
    mine = runs.steps[rows[np.array(same, dtype=bool)]]
    found = np.sort(np.where(np.isnan(mine), np.inf, mine))
    if not len(found):
        return None, len(rows)
    return Repeats(steps=tuple(found.tolist())), len(rows) - len(found)


def note(pairs: Sequence[tuple[float, Repeats]]) -> str | None:
    """What the repeats say of the minima: of each batch size the least steps, and its repeats."""
    found = [(least, each.median) for least, each in pairs]
    ratios = [middle / least for least, middle in found if middle is not None]
    if not ratios:
        return None
    usual = float(np.median(ratios))
    many = count(len(ratios), "batch size")
    spread = f"the median of {many}, {min(ratios):.2f} to {max(ratios):.2f}"
    lost = len(found) - len(ratios)
    return (
        f"trained again with fresh seeds, the best configuration takes {usual:.2f} times its "
        f"best trial's steps{f' ({spread})' if len(ratios) > 1 else ''}"
        + (f"; at {lost} it mostly misses the target" if lost else "")
    )


def _rank(runs: int) -> int:
    return max([1, *(k for k in range(2, runs // 2 + 1) if _coverage(runs, k) >= LEVEL)])


def _coverage(runs: int, k: int) -> float:
    if runs < 2:
        return 0.0
    return 1.0 - 2.0 * sum(math.comb(runs, i) for i in range(k)) / 2.0**runs
