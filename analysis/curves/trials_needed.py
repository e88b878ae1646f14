"""Was N enough? The expected best of fewer trials, computed exactly from the N that there are.

Only what the study knows exactly is used, X(1) … X(r): with dominated stopping r is ``keep`` (and
ties), else every trial that reached the target. The fewer trials, the more often their best is
none of these: an n is shown only where that is so of at most ``MOST_CENSORED`` of its subsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log

import numpy as np
from numpy.typing import NDArray

from analysis.curves import subsets
from analysis.curves.estimators import Sample
from results.counts import agreeing, count

MOST_CENSORED = 0.05
"""Share of the subsets of n whose best is not among the known trials."""

ENOUGH = 0.05
"""What half of the trials may cost more, in steps, for N to be called enough."""

ABOUT_HALF = 0.6
"""The share of N up to which the least n that is shown stands for half of the trials."""

_SHOWN = 256
"""Numbers of trials shown, at most."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The expected best against the number of trials, at one batch size."""

    trials: int
    """N."""
    known: int
    """r: order statistics that are exact."""
    n: tuple[int, ...]
    """Numbers of trials whose censored weight is at most ``MOST_CENSORED``, up to N; ascending."""
    expected: tuple[float, ...]
    """The expected best of each, in steps; the last is X(1)."""
    enlarged: int = 0
    """How many of the N lie in what was added to the search space."""

    @property
    def first(self) -> int:
        """N in the space as it was first given: what batch sizes share; of a space where nothing
        stayed feasible before it was enlarged, all."""
        return (self.trials - self.enlarged) or self.trials

    @property
    def shares(self) -> NDArray[np.float64]:
        """``n`` as the trials that a search of that density has in that space."""
        return np.array(self.n) * (self.first / self.trials)

    @property
    def fewest(self) -> int:
        """The least n shown."""
        return self.n[0]

    @property
    def fewest_ratio(self) -> float:
        """Steps of the expected best of ``fewest`` trials over those of the best of N."""
        return self.expected[0] / self.expected[-1]

    @property
    def half_ratio(self) -> float | None:
        """The same of half of the trials, or of the least n shown where that is about half; None
        where too few are known for that."""
        half = max(ceil(self.trials / 2), self.fewest)
        if self.trials < 2 or half > max(ABOUT_HALF * self.trials, ceil(self.trials / 2)):
            return None
        return float(np.interp(half, self.n, self.expected)) / self.expected[-1]


def budget(sample: Sample) -> Budget | None:
    """The expected best of fewer trials than ``sample`` has; None where nothing is known.

    E[best of n] = sum_j X(j) C(N - j, n - 1) / C(N, n), over j up to r, divided by one minus the
    censored weight C(N - r, n) / C(N, n): the mean over those subsets whose best is known. It
    leaves out the at most 5 % of subsets whose best lies beyond X(r), and so errs downwards.
    """
    least = subsets.fewest(sample.trials, sample.known, MOST_CENSORED)
    if least is None or not sample.steps[0] > 0:  # met before the first step: no ratio to that
        return None
    n = np.unique(np.linspace(least, sample.trials, _SHOWN).round().astype(np.intp))
    found = subsets.expected(sample.steps, sample.trials, n)
    return Budget(
        trials=sample.trials,
        known=sample.known,
        n=tuple(n.tolist()),
        expected=tuple(found.tolist()),
        enlarged=sample.enlarged,
    )


def note(budgets: Sequence[tuple[int, Budget]]) -> str | None:
    """Whether N was enough, in a sentence: of each batch size its budget check.

    N was enough if half of the trials would have cost at most ``ENOUGH`` more steps, by the
    geometric mean over the batch sizes (one alone is as noisy as its best trial). Said only where
    that is known of most of them.
    """
    if not budgets:
        return None
    found = [(size, each.half_ratio) for size, each in budgets]
    known = [(ratio, size) for size, ratio in found if ratio is not None]
    least, most = min(b.first for _, b in budgets), max(b.first for _, b in budgets)
    many = f"{least} to " if least < most else ""
    many += count(most, "trial")
    if 2 * len(known) <= len(budgets):
        exact = sorted(each.known for _, each in budgets)[len(budgets) // 2]
        return (
            f"whether {many} {agreeing(most, 'were')} enough cannot be told: only {exact} of the "
            f"best {agreeing(exact, 'are')} known, which says little of half as many"
        )
    mean = exp(sum(log(ratio) for ratio, _ in known) / len(known)) - 1
    worst, where = max(known)
    verdict = "were enough" if mean <= ENOUGH else "may be too few"
    more = f" (at most {worst - 1:.0%}, at batch size {where})" if len(known) > 1 else ""
    return f"{many} {verdict}: the best of half as many takes {mean:.1%} more steps{more}"
