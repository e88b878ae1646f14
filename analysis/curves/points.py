"""One batch size of a curve: what stands for its search, or its repeated runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from analysis.curves import estimators
from analysis.curves.edges import Edge, parameters
from analysis.curves.estimators import BEST_OF_10, MEDIAN, MINIMUM, Estimate, Sample
from analysis.curves.order import BAR, error_bar, order_statistic
from analysis.curves.repeats import Repeats
from analysis.curves.runs import Rows, Runs, number
from analysis.curves.searches import Search
from analysis.curves.trial_outcomes import TrialOutcome, trial_outcomes
from analysis.curves.trials_needed import Budget, budget

SEARCHED = ("search", "extension")


@dataclass(frozen=True, kw_only=True)
class Point:
    """Steps to target at one batch size. Steps and batch sizes are in steps and examples."""

    batch_size: int
    steps: float | None
    """The estimator's value (X(1) where that is the minimum), or the median of repeated runs;
    None: not reached (censored)."""
    estimator: str = MINIMUM
    """What ``steps`` is of a search: see ``analysis.curves.estimators``."""
    minimum: float | None = None
    """X(1); None: nothing reached the target, or these are repeated runs."""
    last_miss: float | None = None
    """The last evaluated step before the minimum."""
    refined: float | None = None
    """The least steps to target on the finer grid, of the trials tied at the minimum: another
    estimand, which nothing else here is compared with."""
    refined_last_miss: float | None = None
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
    """How many of them lie in what was added to the search space."""
    searches: int = 1
    """How many times the study was searched."""
    available: int = 0
    """Feasible trials before they were cut to what all batch sizes of the curve have."""
    ran: int = 0
    """Trials that ran, the infeasible ones included."""
    infeasible: int = 0
    best: Mapping[str, Any] = field(default_factory=dict)
    """Metaparameters of the trial at the minimum, and ``optimizer`` … if it was minimized over."""
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
    """What is fitted: the estimator's value of the middles of the brackets, (last_miss + 1 +
    steps) / 2, or of the steps where no bracket is known. One for a search, one a run for repeats,
    none if censored."""
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
    trial_outcomes: tuple[TrialOutcome, ...] = field(default=(), compare=False, repr=False)
    """Each trial that ran, those beyond the N too. Under dominated stopping what became of it
    depends on the order of training."""

    @property
    def censored(self) -> bool:
        return self.steps is None

    @property
    def bar(self) -> tuple[float, float] | None:
        """The error bar in steps (see ``order`` and ``estimators``); of repeats, their
        least and most. None where the trials were not drawn alike."""
        if self.runs:
            return min(self.runs), max(self.runs)
        if self.steps is None or not self.exact:
            return None
        if self.spread is not None:
            return self.spread
        if self.estimator == BEST_OF_10 or not self.exchangeable:
            return None
        return error_bar(self.minimum, self.fourth)


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
    parts = {
        name: _Part.of(runs, some, n, batch_size, estimator) for name, some in searches.items()
    }
    everything = [part.used for part in parts.values()]
    used = np.concatenate(everything)
    whole = Sample.of(runs, used, _kept(runs, searches.values()))
    drawn = np.concatenate([part.drawn for part in parts.values()])
    barren = np.concatenate([s.barren for some in searches.values() for s in some])
    point = Point(
        batch_size=batch_size,
        steps=None,
        estimator=estimator,
        trials=len(used),
        enlarged=int((runs.enlargement[used] > 0).sum()),
        searches=max(len(some) for some in searches.values()),
        available=sum(search.available for some in searches.values() for search in some),
        ran=len(drawn),
        infeasible=int(np.isin(drawn, barren).sum()),
        exact=whole.exact,
        exchangeable=exchangeable,
        trial_outcomes=trial_outcomes(
            runs, np.concatenate([s.rows for some in searches.values() for s in some])
        ),
    )
    if not len(whole.hit):
        return point
    point = replace(point, **_least(runs, whole, over))
    # Of several algorithms no random n of the trials would be a search.
    if exchangeable and len(searches) == 1 and estimator != MEDIAN:
        point = replace(point, budget=budget(whole))
    if estimator == MINIMUM:
        return replace(point, steps=point.minimum, middles=(float(whole.middles[0]),))
    values = [part.value for part in parts.values() if part.value.steps is not None]
    if not values:
        return point
    best = min(values, key=lambda value: value.steps or 0.0)
    assert best.steps is not None
    assert best.middle is not None
    return replace(point, steps=best.steps, middles=(best.middle,), spread=best.bar)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The searches of one training algorithm."""

    used: Rows
    drawn: Rows
    value: Estimate

    @classmethod
    def of(
        cls, runs: Runs, searches: Sequence[Search], n: int, batch_size: int, estimator: str
    ) -> _Part:
        firsts = [(search, np.concatenate(search.first(n))) for search in searches]
        used = [search.feasible(rows) for search, rows in firsts]
        value = Estimate(steps=None)
        keep = _kept(runs, [searches])
        if estimator == BEST_OF_10 and any(len(rows) for rows in used):
            sample = Sample.of(runs, np.concatenate(used), keep)
            value = estimators.best_of_10(sample, batch_size)
        elif estimator == MEDIAN:
            samples = [Sample.of(runs, rows, keep) for rows in used]
            value = estimators.median_of_searches(samples)
        return cls(
            used=np.concatenate(used),
            drawn=np.concatenate([rows for _, rows in firsts]),
            value=value,
        )


def _kept(runs: Runs, searches: Any) -> int | None:
    return runs.kept(np.concatenate([search.rows for some in searches for search in some]))


def _least(runs: Runs, sample: Sample, over: Sequence[str]) -> dict[str, Any]:
    """What a point says of its best trial, whatever the estimator."""
    best = sample.hit[0]
    row = {name: cells[best] for name, cells in runs.rows.items()}
    algorithm = {name: row[name] for name in over if isinstance(row[name], str)}
    refined, refined_last_miss = _refined(runs, sample)
    return {
        "minimum": float(sample.steps[0]),
        "last_miss": number(runs.last_miss[best]),
        "refined": refined,
        "refined_last_miss": refined_last_miss,
        "fourth": order_statistic(sample.steps[: sample.known], BAR),
        "hits": sample.known,
        "best": {**algorithm, **parameters(row["metaparameters"])},
        "trial": row["trial"],
        "study": row["study"] if isinstance(row["study"], str) else None,
        "learning_rate": number(row["learning_rate"]),
        "effective_learning_rate": number(row["effective_learning_rate"]),
        "rates": runs.rates(sample.hit),
    }


def _refined(runs: Runs, sample: Sample) -> tuple[float | None, float | None]:
    """The least refined steps of the trials tied at X(1), and their last miss; None unless all of
    them were refined, since the least may be any of theirs. Later brackets lie beyond."""
    tied = sample.hit[sample.steps == sample.steps[0]]
    if not np.isfinite(runs.refined[tied]).all():
        return None, None
    first = tied[np.argmin(runs.refined[tied])]
    return float(runs.refined[first]), number(runs.refined_last_miss[first])


def of_runs(runs: Runs, batch_size: int, rows: Rows) -> Point:
    """The point of repeated runs: never minimized over."""
    hit = rows[np.isfinite(runs.steps[rows])]
    found = runs.steps[hit].tolist()
    return Point(
        batch_size=batch_size,
        steps=median(found) if found else None,
        hits=len(found),
        trials=len(rows),
        available=len(rows),
        ran=len(rows),
        runs=tuple(sorted(found)),
        middles=tuple(estimators.middles(runs.steps[hit], runs.last_miss[hit]).tolist()),
        trial_outcomes=trial_outcomes(runs, rows),
    )


def tabulate(point: Point) -> dict[str, Any]:
    """``point`` as columns: plain values, None where there is none."""
    low, high = point.bar or (None, None)
    again, fewer = point.repeats, point.budget
    between = again.interval if again else (None, None)
    return {
        "batch_size": point.batch_size,
        "steps": point.steps,
        "low": low,
        "high": _finite(high),
        "minimum": point.minimum,
        "last_miss": point.last_miss,
        "refined_steps": point.refined,
        "refined_last_miss": point.refined_last_miss,
        "examples": None if point.steps is None else point.steps * point.batch_size,
        "trials": point.trials,
        "enlarged": point.enlarged,
        "hits": point.hits,
        "ran": point.ran,
        "infeasible": point.infeasible,
        "learning_rate": point.learning_rate,
        "effective_learning_rate": point.effective_learning_rate,
        "edges": "; ".join(edge.told for edge in point.edges),
        "fewest_trials": fewer.fewest if fewer else None,
        "fewest_trials_ratio": fewer.fewest_ratio if fewer else None,
        "half_trials_ratio": fewer.half_ratio if fewer else None,
        "repeats": len(again.steps) if again else 0,
        "repeats_median": again.median if again else None,
        "repeats_low": _finite(between[0]),
        "repeats_high": _finite(between[1]),
        "repeats_level": again.level if again else None,
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else value
