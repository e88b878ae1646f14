"""What stands for a batch size: the estimators of steps to target, from exact order statistics.

- ``minimum``: X(1), the least of the N feasible trials.
- ``best_of_10``: the expected best of ten trials, on log steps: the exponential of the mean, over
  all subsets of ten of the N, of the log of the least steps. A U-statistic, whose noise is about
  half that of the minimum.
- ``median_of_searches``: AlgoPerf's rule (Dahl et al. 2023, arXiv:2306.07179): the least
  within each search, and the median of these.

They answer different questions: curves of unequal estimators are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from analysis.curves import subsets
from analysis.curves.runs import Rows, Runs
from results.counts import count
from results.errors import ResultsError, nearest

MINIMUM, BEST_OF_10, MEDIAN = NAMES = ("minimum", "best_of_10", "median_of_searches")
TEN = 10

MOST_CENSORED = 0.35
"""Share of the subsets of ten whose least is not known, above which their mean says little."""

_NORMAL = 1.6448536269514722
"""Of a normal quantity 90 % lie within so many standard deviations."""


class EstimatorError(ResultsError):
    """No such estimator, or the trials do not carry it."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """N feasible trials, as far as their order statistics are exact."""

    trials: int
    """N."""
    hit: Rows
    """The trials at X(1) … X(r), the least first."""
    steps: NDArray[np.float64]
    """X(1) … X(r), (r,)."""
    middles: NDArray[np.float64]
    """The middles of their brackets in steps, (r,)."""
    cut: bool
    """Whether what lies beyond X(r) was cut off by dominated stopping, not by the budget."""
    enlarged: int = 0
    """How many of the trials lie in what was added to the search space."""
    exact: bool = True
    """Whether X(1) is known. Else ``hit`` is the least of what is, if anything: the trial at X(1)
    may be one that was dominated by trials outside the sample."""

    @property
    def tens(self) -> int:
        """How many of the trials are a search of ten: where the space was enlarged at the same
        density, ten of the space as it was first given and their share of what was added."""
        first = self.trials - self.enlarged
        return round(TEN * self.trials / first) if first >= TEN else TEN

    @property
    def known(self) -> int:
        """r: how many order statistics are exact."""
        return len(self.hit) if self.exact else 0

    @classmethod
    def of(cls, runs: Runs, used: Rows, keep: int | None) -> Sample:
        """The order statistics of the feasible trials ``used``, of studies with ``keep``."""
        cutoff = runs.cutoff(used, keep)
        reached = used[np.isfinite(runs.steps[used])]
        hit = reached[runs.steps[reached] <= cutoff]
        exact = bool(len(hit) or not runs.dominated[used].any())
        if not exact and len(reached):
            hit = reached[[np.argmin(runs.steps[reached])]]
        hit = hit[np.argsort(runs.steps[hit], kind="stable")]
        steps = runs.steps[hit]
        return cls(
            trials=len(used),
            hit=hit,
            steps=steps,
            middles=middles(steps, runs.last_miss[hit]),
            cut=bool(np.isfinite(cutoff)),
            enlarged=int((runs.enlargement[used] > 0).sum()),
            exact=exact,
        )


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The estimator's value at one batch size, in steps; None: beyond what reached the target."""

    steps: float | None
    middle: float | None = None
    """The same of the middles of the brackets: what is fitted."""
    bar: tuple[float, float] | None = None
    """Where it has one of its own: 90 % of a best of ten, the least and most of several minima."""


def check(name: str) -> str:
    """``name``, if there is such an estimator.

    Raises:
        EstimatorError: there is none.
    """
    if name not in NAMES:
        near = nearest(name, NAMES)
        raise EstimatorError(
            f"no estimator is called {name!r}",
            hint=f"did you mean {near}?" if near else f"estimators: {', '.join(NAMES)}",
        )
    return name


def best_of_10(sample: Sample, batch_size: int) -> Estimate:
    """The expected best of ten (``Sample.tens``), from the known order statistics.

    Subsets of ten whose least is beyond X(r) count with X(r): that is the tightest bound below
    that the known part gives, and it makes the value a fixed weighted mean of log X(1) … log X(r)
    (the same at every batch size with the same N and r). The bar is that of the delete-one
    jackknife, 90 %, for trials drawn alike.

    Where fewer trials reached the target within their budget than such a mean needs, a best of
    ten would often not reach it either: the value is beyond what was reached (None).

    Raises:
        EstimatorError: fewer than ten trials, or dominated stopping has left more than
            ``MOST_CENSORED`` of the subsets without a known least.
    """
    at = f"at batch size {batch_size}"
    first = sample.trials - sample.enlarged
    if first < TEN:
        raise EstimatorError(
            f"best_of_10 takes ten feasible trials, and {at} there are {first}",
            hint="raise trials, or take --estimator minimum",
        )
    n = sample.tens
    weight, censored = subsets.weights(sample.trials, n, sample.known)
    if censored > MOST_CENSORED:
        if sample.cut or not sample.exact:
            needed = subsets.least_known(sample.trials, n, MOST_CENSORED)
            raise EstimatorError(
                f"best_of_10 of {count(sample.trials, 'trial')} takes the {needed} best of them, "
                f"and {at} dominated stopping has left {sample.known}: of {censored:.0%} of the "
                "tens the best is not known",
                hint=f"sweep with keep: {max(needed, TEN)}, or take --estimator minimum",
            )
        return Estimate(steps=None)
    logs = np.log(sample.steps)
    value = float(weight @ logs + censored * logs[-1])
    inner = np.log(sample.middles)
    bar = None
    if sample.trials > n and len(logs) > 1:
        half = _NORMAL * _jackknife(logs, sample.trials, n)
        bar = float(np.exp(value - half)), float(np.exp(value + half))
    return Estimate(
        steps=float(np.exp(value)),
        middle=float(np.exp(weight @ inner + censored * inner[-1])),
        bar=bar,
    )


def _jackknife(logs: NDArray[np.float64], trials: int, n: int) -> float:
    """The delete-one standard error of a best of ten in log steps (Efron & Stein 1981).

    Of the N - 1 that are left r - 1 count as known, whichever was left out, so that the last known
    one varies as it does from search to search.
    """
    weight, censored = subsets.weights(trials - 1, n, len(logs) - 1)
    # Without the j-th, those before it keep their place and those after it move down by one.
    below = np.concatenate([[0.0], np.cumsum(weight * logs[:-1])])
    above = np.concatenate([np.cumsum((weight * logs[1:])[::-1])[::-1], [0.0]])
    last = np.append(np.full(len(logs) - 1, logs[-1]), logs[-2])
    values = below + above + censored * last
    # Leaving out one that is not known leaves what leaving out the last known one does.
    times = np.ones(len(logs))
    times[-1] += trials - len(logs)
    mean = (times @ values) / trials
    return float(np.sqrt((trials - 1) / trials * (times @ np.square(values - mean))))


def median_of_searches(samples: Sequence[Sample]) -> Estimate:
    """The median of the searches' minima; a search that never reached the target counts as one
    that takes longer than all. The bar reaches from the least of the minima to the most.

    A minimum that is not known exactly (its search was cut off by trials of another one) stands
    above those that are.
    """
    known = [sample for sample in samples if sample.known]
    steps = [float(sample.steps[0]) for sample in known]
    inner = [float(sample.middles[0]) for sample in known]
    lost = [float("inf")] * (len(samples) - len(known))
    at = median([*steps, *lost])
    if not np.isfinite(at):
        return Estimate(steps=None)
    bar = (min(steps), max([*steps, *lost])) if len(samples) > 1 else None
    return Estimate(steps=at, middle=median([*inner, *lost]), bar=bar)


def middles(steps: NDArray[np.float64], last_miss: NDArray[np.float64]) -> NDArray[np.float64]:
    """The middles of the brackets in which the target was passed, in steps; the steps themselves
    where no bracket is known."""
    return np.where(np.isnan(last_miss), steps, (last_miss + 1 + steps) / 2)
