"""Estimators of a batch size, and whether its trials were enough: from exact order statistics.

- ``minimum``: X(1), the least of the N feasible trials.
- ``best_of_10``: the expected best of ten trials, on log steps: the exponential of the mean, over
  all subsets of ten of the N, of the log of the least steps. A U-statistic, whose noise is about
  half that of the minimum.
- ``median_of_searches``: AlgoPerf's rule (Dahl et al. 2023, arXiv:2306.07179): the least
  within each search, and the median of these.

They answer different questions: curves of unequal estimators are not compared.

The j-th smallest of N, X(j), is the least of C(N - j, n - 1) of the subsets of n. Where only
X(1) … X(r) are known, the least of C(N - r, n) of them is not: their share is the *censored
weight*. Nothing is drawn at random: these are the exact U-statistics (Hoeffding 1948). With
dominated stopping r is ``keep`` (and ties), else every trial that reached the target.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log
from statistics import median

import numpy as np
from numpy.typing import NDArray

from analysis.curves.runs import Rows, Runs
from analysis.notes import Note
from results.counts import count
from results.errors import ResultsError

Array = NDArray[np.float64]

MINIMUM, BEST_OF_10, MEDIAN = NAMES = ("minimum", "best_of_10", "median_of_searches")
TEN = 10

MOST_CENSORED_TENS = 0.35
"""Share of the subsets of ten whose least is not known, above which their mean says little."""

MOST_CENSORED = 0.05
"""Share of the subsets of n whose least is not known, above which the expected best of n is not
given."""

ENOUGH = 0.05
"""N is enough if half of the trials take at most this share of additional steps."""

ABOUT_HALF = 0.6
"""The least n given may replace half of the trials up to this share of N."""

_MOST_NUMBERS = 256
"""Most numbers of trials for which the expected best is given."""

_NORMAL = 1.6448536269514722
"""90 % of a normal quantity lie within this many standard deviations."""


class EstimatorError(ResultsError):
    """No such estimator, or the trials do not carry it."""


@dataclass(frozen=True, kw_only=True)
class OrderStatistics:
    """N feasible trials, with those order statistics that are exact."""

    trials: int
    """N."""
    hit: Rows
    """The trials at X(1) … X(r), the least first."""
    steps: Array
    """X(1) … X(r), (r,)."""
    middles: Array
    """The middles of their brackets in steps, (r,)."""
    cut: bool
    """Whether trials beyond X(r) were cut off by dominated stopping, not by the budget."""
    enlarged: int = 0
    """Number of the trials that lie in enlargements of the search space."""
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
    def of(cls, runs: Runs, used: Rows, keep: int | None) -> OrderStatistics:
        """The order statistics of the feasible trials ``used``, of studies with ``keep``."""
        cutoff = runs.cutoff(used, keep)
        finished = used[np.isfinite(runs.steps[used])]
        hit = finished[runs.steps[finished] <= cutoff]
        exact = bool(len(hit) or not runs.dominated[used].any())
        if not exact and len(finished):
            hit = finished[[np.argmin(runs.steps[finished])]]
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
    """The same from the middles of the brackets, which is fitted."""
    bar: tuple[float, float] | None = None
    """The estimator's error bar: 90 % for a best of ten, the least and most of several minima."""


def best_of_10(sample: OrderStatistics, batch_size: int) -> Estimate:
    """The expected best of ten (``OrderStatistics.tens``), from the known order statistics.

    Subsets of ten whose least is beyond X(r) count with X(r): that is the tightest bound below
    that the known part gives, and it makes the value a fixed weighted mean of log X(1) … log X(r)
    (the same at every batch size with the same N and r). The bar is that of the delete-one
    jackknife, 90 %, for trials drawn alike.

    Where fewer trials reached the target within their budget than such a mean needs, a best of
    ten would often not reach it either: the value is beyond what was reached (None).

    Raises:
        EstimatorError: fewer than ten trials, or dominated stopping has left more than
            ``MOST_CENSORED_TENS`` of the subsets without a known least.
    """
    first = sample.trials - sample.enlarged
    if first < TEN:
        raise EstimatorError(
            f"best_of_10 needs ten feasible trials, and at batch size {batch_size} there are "
            f"{first}",
            hint="raise trials, or take --estimator minimum",
        )
    n = sample.tens
    weight, censored = weights(sample.trials, n, sample.known)
    if censored > MOST_CENSORED_TENS:
        if sample.cut or not sample.exact:
            needed = least_known(sample.trials, n, MOST_CENSORED_TENS)
            raise EstimatorError(
                f"best_of_10 of {count(sample.trials, 'trial')} needs the {needed} best of them, "
                f"and at batch size {batch_size} dominated stopping has left {sample.known}: the "
                f"best is not known for {censored:.0%} of the subsets of ten",
                hint=f"sweep with keep: {max(needed, TEN)}, or take --estimator minimum",
            )
        return Estimate(steps=None)
    if not sample.steps[0] > 0:  # met before the first step
        return Estimate(steps=0.0, middle=float(sample.middles[0]))
    logs = np.log(sample.steps)
    value = float(weight @ logs + censored * logs[-1])
    log_middles = np.log(sample.middles)
    bar = None
    if sample.trials > n and len(logs) > 1:
        half = _NORMAL * _jackknife(logs, sample.trials, n)
        bar = float(np.exp(value - half)), float(np.exp(value + half))
    return Estimate(
        steps=float(np.exp(value)),
        middle=float(np.exp(weight @ log_middles + censored * log_middles[-1])),
        bar=bar,
    )


def _jackknife(logs: Array, trials: int, n: int) -> float:
    """The delete-one standard error of a best of ten in log steps (Efron & Stein 1981).

    Of the N - 1 that are left r - 1 count as known, whichever was left out, so that the last known
    one varies as it does from search to search.
    """
    weight, censored = weights(trials - 1, n, len(logs) - 1)
    # Without the j-th, those before it keep their place and those after it move down by one.
    below = np.concatenate([[0.0], np.cumsum(weight * logs[:-1])])
    above = np.concatenate([np.cumsum((weight * logs[1:])[::-1])[::-1], [0.0]])
    last = np.append(np.full(len(logs) - 1, logs[-1]), logs[-2])
    values = below + above + censored * last
    # Leaving out an unknown one gives the same as leaving out the last known one.
    times = np.ones(len(logs))
    times[-1] += trials - len(logs)
    mean = (times @ values) / trials
    return float(np.sqrt((trials - 1) / trials * (times @ np.square(values - mean))))


def median_of_searches(samples: Sequence[OrderStatistics]) -> Estimate:
    """The median of the searches' minima; a search that never reached the target counts as one
    that takes longer than all. The bar reaches from the least of the minima to the most.

    A minimum that is not known exactly (its search was cut off by trials of another one) is placed
    above the known ones.
    """
    exact = [sample for sample in samples if sample.known]
    steps = [float(sample.steps[0]) for sample in exact]
    missing = [float("inf")] * (len(samples) - len(exact))
    value = median([*steps, *missing])
    if not np.isfinite(value):
        return Estimate(steps=None)
    middle = median([*(float(sample.middles[0]) for sample in exact), *missing])
    bar = (min(steps), max([*steps, *missing])) if len(samples) > 1 else None
    return Estimate(steps=value, middle=middle, bar=bar)


def middles(steps: Array, last_miss: Array) -> Array:
    """The middles of the brackets in which the target was passed, in steps; the steps themselves
    where no bracket is known."""
    return np.where(np.isnan(last_miss), steps, (last_miss + 1 + steps) / 2)


def weights(trials: int, n: int | NDArray[np.intp], known: int) -> tuple[Array, Array]:
    """With what weight X(1) … X(``known``) are the least of ``n`` of ``trials``, C(N - j, n - 1) /
    C(N, n), (…, known), and the censored weight that is left, C(N - r, n) / C(N, n), (…), of each
    of ``n`` (…).

    Raises:
        ValueError: not 1 <= n <= trials, or more known than there are.
    """
    n = np.asarray(n)
    if not (np.all(n >= 1) and np.all(n <= trials) and 0 <= known <= trials):
        raise ValueError(f"no {n} of N = {trials}, of which {known} are known")
    # The j-th is in the subset with probability n / (N - j + 1) if none before it is.
    inside = np.minimum(n[..., None] / (trials - np.arange(known)), 1.0)
    after = np.cumprod(1.0 - inside, axis=-1)
    none = np.concatenate([np.ones((*n.shape, 1)), after], axis=-1)
    return none[..., :-1] * inside, none[..., -1]


def fewest(trials: int, known: int, most: float) -> int | None:
    """The least n whose censored weight is at most ``most``; None where no n has that (nothing
    is known)."""
    if not known:
        return None
    # The censored weight falls with n, to 0 at all of the trials.
    enough = most * (1 + 1e-12)
    return 1 + bisect_left(
        range(1, trials), True, key=lambda n: bool(weights(trials, n, known)[1] <= enough)
    )


def least_known(trials: int, n: int, most: float) -> int:
    """The number of order statistics at which the censored weight of ``n`` is at most ``most``."""
    return next(r for r in range(trials + 1) if weights(trials, n, r)[1] <= most)


def expected(steps: Array, trials: int, n: NDArray[np.intp]) -> Array:
    """The expected least of each of ``n`` (m,) trials of ``trials``, in steps, (m,).

    ``steps``: X(1) … X(r), (r,), ascending. It is the mean over those subsets whose least is
    among the r known ones (conditional on that: the sum is divided by one minus the censored
    weight), and so a lower bound of the mean over all; equal to it where r = N.
    """
    weight, censored = weights(trials, n, len(steps))
    return np.asarray(weight @ steps / (1.0 - censored))


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The expected best against the number of trials, at one batch size: was N enough?"""

    trials: int
    """N."""
    known: int
    """r: order statistics that are exact."""
    n: tuple[int, ...]
    """Numbers of trials whose censored weight is at most ``MOST_CENSORED``, up to N; ascending."""
    expected: tuple[float, ...]
    """The expected best of each, in steps; the last is X(1)."""
    enlarged: int = 0
    """Number of the N that lie in enlargements of the search space."""

    @property
    def first(self) -> int:
        """N in the space as it was first given: what batch sizes share; of a space where nothing
        stayed feasible before it was enlarged, all."""
        return (self.trials - self.enlarged) or self.trials

    @property
    def shares(self) -> Array:
        """``n`` as the trials that a search of that density has in that space."""
        return np.array(self.n) * (self.first / self.trials)

    @property
    def fewest(self) -> int:
        """The least n given."""
        return self.n[0]

    @property
    def fewest_ratio(self) -> float:
        """Steps of the expected best of ``fewest`` trials over those of the best of N."""
        return self.expected[0] / self.expected[-1]

    @property
    def half_ratio(self) -> float | None:
        """The same of half of the trials, or of the least n given where that is about half; None
        where too few are known for that."""
        half = max(ceil(self.trials / 2), self.fewest)
        if self.trials < 2 or half > max(ABOUT_HALF * self.trials, ceil(self.trials / 2)):
            return None
        return float(np.interp(half, self.n, self.expected)) / self.expected[-1]


def budget(sample: OrderStatistics) -> Budget | None:
    """The expected best of fewer trials than ``sample`` has; None where nothing is known.

    E[best of n] = sum_j X(j) C(N - j, n - 1) / C(N, n), over j up to r, divided by one minus the
    censored weight C(N - r, n) / C(N, n): the mean over those subsets whose best is known. It
    leaves out the at most 5 % of subsets whose best lies beyond X(r), and so errs downwards.
    """
    least = fewest(sample.trials, sample.known, MOST_CENSORED)
    if least is None or not sample.steps[0] > 0:  # met before the first step: no ratio to that
        return None
    n = np.unique(np.linspace(least, sample.trials, _MOST_NUMBERS).round().astype(np.intp))
    return Budget(
        trials=sample.trials,
        known=sample.known,
        n=tuple(n.tolist()),
        expected=tuple(expected(sample.steps, sample.trials, n).tolist()),
        enlarged=sample.enlarged,
    )


def budget_note(budgets: Sequence[tuple[int, Budget]]) -> Note | None:
    """Whether N was enough, from the budget check of each batch size.

    N was enough if half of the trials would have cost at most ``ENOUGH`` more steps, by the
    geometric mean over the batch sizes (one alone is as noisy as its best trial). Given only where
    that is known of most of them.
    """
    if not budgets:
        return None
    half_ratios = [(each.half_ratio, size) for size, each in budgets]
    ratios = [(ratio, size) for ratio, size in half_ratios if ratio is not None]
    trials = min(b.first for _, b in budgets), max(b.first for _, b in budgets)
    if 2 * len(ratios) <= len(budgets):
        exact = sorted(each.known for _, each in budgets)[len(budgets) // 2]
        return Note("trials_unknown", n=trials, known=exact)
    mean = exp(sum(log(ratio) for ratio, _ in ratios) / len(ratios)) - 1
    worst, where = max(ratios)
    most = f" (at most {worst - 1:.0%}, at batch size {where})" if len(ratios) > 1 else ""
    return Note("enough_trials" if mean <= ENOUGH else "few_trials", n=trials, half=mean, most=most)
