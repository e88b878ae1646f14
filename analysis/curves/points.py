"""One batch size of a curve: the estimate from its search, or its repeated runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from analysis.curves import estimators
from analysis.curves.edges import Edge
from analysis.curves.estimators import (
    BEST_OF_10,
    MEDIAN,
    MINIMUM,
    Budget,
    Estimate,
    OrderStatistics,
    budget,
)
from analysis.curves.runs import (
    BAR,
    Repeats,
    Rows,
    Runs,
    TrialOutcome,
    error_bar,
    number,
    order_statistic,
    parameters,
)
from analysis.curves.samples import Search
from results.acts_from import acts_from
from results.batch_phases import BatchPhases

SEARCH_ROLES = ("search", "extension")
"""Roles of the trials that are minimized over."""
BRANCH = "branch"
"""The role of rows that go on from a step of a trial (``analysis.branches``): of no curve."""

_ACTING = ["acts_from", "technique", "schedule", "metaparameters", "budget_steps", "batch_sizes"]
"""Columns that say when parts of the training algorithm act."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Steps to target at one batch size. Steps and batch sizes are in steps and examples."""

    batch_size: int
    steps: float | None
    """The estimator's value (X(1) where that is the minimum), or the geometric mean of repeated
    runs; None: not reached (censored), as where most runs miss it."""
    estimator: str = MINIMUM
    """The estimator of ``steps`` of a search: see ``analysis.curves.estimators``."""
    minimum: float | None = None
    """X(1); None: nothing reached the target, or these are repeated runs."""
    last_miss: float | None = None
    """The last evaluated step before the minimum; of runs, in proportion to their steps, the mean
    where it is known."""
    relative_error: float | None = None
    """Of the steps as they were read off a figure; of several runs the root mean square, since
    what is wrong with the reading of a figure is much the same for each; None: they were not."""
    order_statistics: tuple[float, ...] = field(default=(), repr=False)
    """The middles of the brackets of X(1) … X(r), those that are exact, where the trials are one
    search of trials drawn alike; else none."""
    fourth: float | None = None
    """X(4); None: fewer than four trials reached the target, or these are repeated runs."""
    hits: int = 0
    """Trials known to have reached the target, up to the last order statistic that is exact."""
    exact: bool = True
    """Whether the minimum is, or that there is none: else a trial that was dominated by later ones
    may lie below it."""
    trials: int = 0
    """N: feasible trials, or runs."""
    enlarged: int = 0
    """Number of them that lie in enlargements of the search space."""
    searches: int = 1
    """How many times the study was searched."""
    ran: int = 0
    """Trials that ran, the infeasible ones included."""
    infeasible: int = 0
    best: Mapping[str, Any] = field(default_factory=dict)
    """Metaparameters of the trial at the minimum, and ``optimizer`` … if it was minimized over."""
    acts_from: Mapping[str, int] = field(default_factory=dict)
    """Updates before each part of its training algorithm acts (``results.acts_from``)."""
    trial: str | None = None
    study: str | None = None
    learning_rate: float | None = None
    effective_learning_rate: float | None = None
    rates: tuple[float, ...] = ()
    """Effective learning rates (plain ones where the optimizer has no such meaning) of the up to
    four best trials, best first."""
    runs: tuple[float, ...] = ()
    """Steps to target of each repeated run; empty for a search."""
    middles: tuple[float, ...] = ()
    """The fitted values: the estimator's value of the middles of the brackets, (last_miss + 1 +
    steps) / 2, or of the steps where no bracket is known. One for a search, one a run for repeats,
    none if censored."""
    replicates: tuple[float, ...] = ()
    """The value of each search of a design's baseline, in steps; ``middles`` has one for each."""
    spread: tuple[float, float] | None = None
    """The estimator's own error bar, where it has one."""
    exchangeable: bool = True
    """Whether the trials were drawn alike: else there is no error bar."""
    budget: Budget | None = None
    """The expected best of fewer trials."""
    repeats: Repeats | None = None
    """The best configuration, trained again with fresh seeds."""
    edges: tuple[Edge, ...] = ()
    """Tuned dimensions whose optimum sits on the edge of its search space, or near it."""
    phases: BatchPhases | None = None
    """Of the trial at the minimum, or of the runs, where the batch size grew during training."""
    trial_outcomes: tuple[TrialOutcome, ...] = field(default=(), compare=False, repr=False)
    """Each trial that ran, those beyond the N too."""

    @property
    def log_variance(self) -> float | None:
        """Of the natural logs of ``replicates``, with n - 1 degrees of freedom: between searches;
        None of fewer than two."""
        several = len(self.replicates) > 1 and self.replicates[0] > 0
        return float(np.var(np.log(self.replicates), ddof=1)) if several else None

    @property
    def censored(self) -> bool:
        return self.steps is None

    @property
    def examples(self) -> float | None:
        """Examples to target: B·S, or those of all phases where the batch size grew."""
        if self.steps is None:
            return None
        return self.phases.examples(self.steps) if self.phases else self.steps * self.batch_size

    @property
    def bar(self) -> tuple[float, float] | None:
        """The error bar in steps (see ``runs.error_bar`` and ``estimators``); of repeats, their
        least and most. None where the trials were not drawn alike. It does not go below one step
        unless ``steps`` does (a source's relative ones)."""
        if self.runs:
            return min(self.runs), max(self.runs)
        if self.steps is None or not self.exact:
            return None
        ends = self.spread
        if ends is None and self.estimator != BEST_OF_10 and self.exchangeable:
            ends = error_bar(self.minimum, self.fourth)
        return None if ends is None else (max(ends[0], min(self.steps, 1.0)), ends[1])


def of_searches(
    runs: Runs,
    batch_size: int,
    searches: Mapping[str, Sequence[Search]],
    n: int,
    over: Sequence[str],
    *,
    estimator: str = MINIMUM,
    exchangeable: bool = True,
) -> Point:
    """The point of the first ``n`` feasible trials of each of ``searches``, by training algorithm.

    The minimum is that of all of them. Any other estimator is taken of each training algorithm,
    and is that of the best.
    """
    drawn: list[Rows] = []
    feasible: list[Rows] = []
    estimates: list[Estimate] = []
    for each in searches.values():
        first = [np.concatenate(search.first(n)) for search in each]
        parts = [search.feasible(rows) for search, rows in zip(each, first, strict=True)]
        drawn, feasible = drawn + first, feasible + parts
        keep = runs.kept(np.concatenate([search.rows for search in each]))
        if estimator == BEST_OF_10 and any(len(rows) for rows in parts):
            sample = OrderStatistics.of(runs, np.concatenate(parts), keep)
            estimates.append(estimators.best_of_10(sample, batch_size))
        elif estimator == MEDIAN:
            samples = [OrderStatistics.of(runs, rows, keep) for rows in parts]
            estimates.append(estimators.median_of_searches(samples))
    every = [search for each in searches.values() for search in each]
    recorded, ran = np.concatenate([search.rows for search in every]), np.concatenate(drawn)
    used = np.concatenate(feasible)
    whole = OrderStatistics.of(runs, used, runs.kept(recorded))
    infeasible = np.concatenate([search.infeasible for search in every])
    point = Point(
        batch_size=batch_size,
        steps=None,
        estimator=estimator,
        trials=len(used),
        enlarged=int((runs.enlargement[used] > 0).sum()),
        searches=max(len(each) for each in searches.values()),
        ran=len(ran),
        infeasible=int(np.isin(ran, infeasible).sum()),
        exact=whole.exact,
        exchangeable=exchangeable,
        trial_outcomes=runs.outcomes(recorded),
    )
    if not len(whole.hit):
        return point
    point = replace(point, **_of_best(runs, whole, over))
    # A random n of the trials of several algorithms would not be a search.
    if exchangeable and len(searches) == 1 and estimator != MEDIAN:
        exact = tuple(whole.middles[: whole.known].tolist())
        point = replace(point, budget=budget(whole), order_statistics=exact)
    if estimator == MINIMUM:
        return replace(point, steps=point.minimum, middles=(float(whole.middles[0]),))
    estimates = [estimate for estimate in estimates if estimate.steps is not None]
    if not estimates:
        return point
    best = min(estimates, key=lambda estimate: estimate.steps or 0.0)
    assert best.middle is not None
    return replace(point, steps=best.steps, middles=(best.middle,), spread=best.bar)


def pooled(points: Sequence[Point]) -> Point:
    """The point of several searches of a study, each with trials and seeds of its own.

    Its steps are the geometric mean of theirs, and unknown where one of them missed the target;
    the least of all their trials would be the best of more. A fit gets the value of each, so that
    their scatter is part of its noise. What describes one trial is that of the search nearest to
    the mean; ``trials`` are those of one search, and other counts those of all.
    """
    if len(points) == 1:
        return points[0]
    steps = [math.inf if point.steps is None else point.steps for point in points]
    known = [math.log(step) for step in steps if 0 < step < math.inf]
    middle = sum(known) / max(len(known), 1)
    reached = len(known) == len(points) or not any(steps)
    nearest = min(points, key=lambda p: abs(math.log(p.steps) - middle) if p.steps else math.inf)
    return replace(
        nearest,
        steps=(math.exp(middle) if known else 0.0) if reached else None,
        middles=tuple(each for point in points for each in point.middles if reached),
        replicates=tuple(sorted(step for step in steps if step < math.inf)),
        spread=(min(steps), max(steps)) if reached else None,
        exact=all(point.exact for point in points),
        trials=min(point.trials for point in points),
        enlarged=max(point.enlarged for point in points),
        trial_outcomes=tuple(each for point in points for each in point.trial_outcomes),
        **{
            name: sum(getattr(point, name) for point in points)
            for name in ("hits", "ran", "infeasible")
        },
    )


def _of_best(runs: Runs, sample: OrderStatistics, over: Sequence[str]) -> dict[str, Any]:
    """The fields of a point that describe its best trial, whatever the estimator."""
    best = sample.hit[0]
    rows = runs.rows
    algorithm = {name: rows[name][best] for name in over if isinstance(rows[name][best], str)}
    fields = {
        "minimum": float(sample.steps[0]),
        "last_miss": number(runs.last_miss[best]),
        "relative_error": number(runs.relative_error[best]),
        "fourth": order_statistic(sample.steps[: sample.known], BAR),
        "hits": sample.known,
        "best": {**algorithm, **parameters(rows["metaparameters"][best])},
        "acts_from": acts_from({name: rows[name][best] for name in _ACTING if name in rows}),
        "trial": rows["trial"][best],
        "study": study if isinstance(study := rows["study"][best], str) else None,
        "learning_rate": number(rows["learning_rate"][best]),
        "effective_learning_rate": number(rows["effective_learning_rate"][best]),
        "phases": BatchPhases.of(rows["batch_sizes"][best] if "batch_sizes" in rows else None),
    }
    plain, effective = rows["learning_rate"], rows["effective_learning_rate"]
    rates = [
        number(plain[i]) if (rate := number(effective[i])) is None else rate
        for i in sample.hit[:BAR]
    ]
    fields["rates"] = tuple(rate for rate in rates if rate is not None)
    return fields


def of_runs(runs: Runs, batch_size: int, rows: Rows) -> Point:
    """The point of repeated runs: never minimized over. Where most of them miss the target it is
    censored: what the others took says little of the mean. Those that failed or were interrupted
    before it say nothing."""
    rows = rows[runs.ended[rows] | np.isfinite(runs.steps[rows])]
    reached = rows[np.isfinite(runs.steps[rows])]
    hit = reached if 2 * len(reached) >= len(rows) else reached[:0]
    steps = runs.steps[hit].tolist()
    read = runs.relative_error[hit]
    missed = runs.last_miss[hit] / np.maximum(runs.steps[hit], 1e-9)
    mean = _mean(steps) if steps else None
    known = missed[np.isfinite(missed)]
    return Point(
        batch_size=batch_size,
        steps=mean,
        last_miss=float(known.mean()) * mean if mean and len(known) else None,
        relative_error=None if np.isnan(read).all() else float(np.sqrt(np.nanmean(read**2))),
        hits=len(reached),
        trials=len(rows),
        ran=len(rows),
        runs=tuple(sorted(steps)),
        middles=tuple(estimators.middles(runs.steps[hit], runs.last_miss[hit]).tolist()),
        phases=BatchPhases.of(runs.rows["batch_sizes"][rows[0]]) if len(rows) else None,
        trial_outcomes=runs.outcomes(rows),
    )


def _mean(steps: Sequence[float]) -> float:
    """The geometric mean; the median where a run took no step, and of equal ones, as they are."""
    unequal = 0 < min(steps) < max(steps)
    return math.exp(math.fsum(map(math.log, steps)) / len(steps)) if unequal else median(steps)


def tabulate(point: Point) -> dict[str, Any]:
    """``point`` as columns: plain values, None where there is none."""

    def finite(value: float | None) -> float | None:
        return None if value is None or not np.isfinite(value) else value

    low, high = point.bar or (None, None)
    repeats, fewer = point.repeats, point.budget
    repeats_low, repeats_high = repeats.interval if repeats else (None, None)
    return {
        "batch_size": point.batch_size,
        "steps": point.steps,
        "low": low,
        "high": finite(high),
        "minimum": point.minimum,
        "last_miss": point.last_miss,
        "examples": point.examples,
        "trials": point.trials,
        "enlarged": point.enlarged,
        "hits": point.hits,
        "ran": point.ran,
        "infeasible": point.infeasible,
        "learning_rate": point.learning_rate,
        "effective_learning_rate": point.effective_learning_rate,
        "edges": "; ".join(edge.text for edge in point.edges),
        "fewest_trials": fewer.fewest if fewer else None,
        "fewest_trials_ratio": fewer.fewest_ratio if fewer else None,
        "half_trials_ratio": fewer.half_ratio if fewer else None,
        "repeats": len(repeats.steps) if repeats else 0,
        "repeats_median": repeats.median if repeats else None,
        "repeats_low": finite(repeats_low),
        "repeats_high": finite(repeats_high),
        "repeats_level": repeats.level if repeats else None,
    }
