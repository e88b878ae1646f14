"""One batch size of a curve: the best of its first N feasible trials, or its repeated runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.edges import Edge, parameters
from analysis.order import BAR, error_bar, last_exact, order_statistic

Rows = NDArray[np.intp]
"""Places in ``Runs``."""

SEARCHED = ("search", "extension")


@dataclass(frozen=True, kw_only=True)
class Point:
    """Steps to target at one batch size. Steps and batch sizes are in steps and examples."""

    batch_size: int
    steps: float | None
    """X(1), or the median of repeated runs; None: nothing reached the target (censored)."""
    last_miss: float | None = None
    """The last evaluated step before ``steps``."""
    fourth: float | None = None
    """X(4); None: fewer than four trials reached the target, or these are repeated runs."""
    hits: int = 0
    """Trials known to have reached the target, up to the last order statistic that is exact."""
    trials: int = 0
    """N: feasible trials, or runs."""
    available: int = 0
    """Feasible trials before they were cut to what all batch sizes of the curve have."""
    ran: int = 0
    """Trials that ran, the infeasible ones included."""
    infeasible: int = 0
    best: Mapping[str, Any] = field(default_factory=dict)
    """Metaparameters of the trial at ``steps``, and ``optimizer`` … if it was minimized over."""
    trial: str | None = None
    learning_rate: float | None = None
    effective_learning_rate: float | None = None
    rates: tuple[float, ...] = ()
    """Effective learning rates (plain ones where the optimizer has no such meaning) of the up to
    four best trials, best first."""
    runs: tuple[float, ...] = ()
    """Steps to target of each repeated run; empty for a search."""
    middles: tuple[float, ...] = ()
    """What is fitted: the middle of the bracket, (last_miss + 1 + steps) / 2, or the steps where
    no bracket is known. One for a search, one a run for repeats, none if censored."""
    edges: tuple[Edge, ...] = ()
    """Tuned dimensions whose optimum sits on the edge of its search space, or near it."""

    @property
    def censored(self) -> bool:
        return self.steps is None

    @property
    def bar(self) -> tuple[float, float] | None:
        """The error bar in steps (see ``analysis.order``); of repeats, their least and most."""
        if self.runs:
            return min(self.runs), max(self.runs)
        return error_bar(self.steps, self.fourth)


def middle(steps: float, last_miss: float | None) -> float:
    """The middle of the bracket in which the target was passed, in steps."""
    if last_miss is None or last_miss != last_miss:
        return steps
    return (last_miss + 1 + steps) / 2


@dataclass(frozen=True)
class Runs:
    """Rows of trials as plain columns: a curve is made of hundreds of small groups of them."""

    rows: Mapping[str, np.ndarray]
    """``study``, ``trial``, ``metaparameters``, ``batch_size`` …, as objects, (n,)."""
    steps: np.ndarray
    """Steps to target, NaN where it was not reached; likewise the next ones; (n,)."""
    last_miss: np.ndarray
    steps_run: np.ndarray
    index: np.ndarray
    keep: np.ndarray
    diverged: np.ndarray
    ended: np.ndarray
    """COMPLETE, INFEASIBLE or dominated: errors and interruptions say nothing."""

    @classmethod
    def of(cls, trials: pd.DataFrame) -> Runs:
        """The columns of ``trials``, in their order."""

        def numbers(name: str) -> np.ndarray:
            return pd.to_numeric(trials[name]).to_numpy(dtype=float, na_value=np.nan)

        status, reason = (trials[name].to_numpy(object) for name in ("status", "stop_reason"))
        diverged = status == "INFEASIBLE"
        dominated = (status == "INCOMPLETE") & (reason == "dominated")
        return cls(
            rows={name: trials[name].to_numpy(object) for name in trials.columns},
            steps=numbers("steps_to_target"),
            last_miss=numbers("last_miss"),
            steps_run=np.nan_to_num(numbers("steps_run")),
            index=numbers("index"),
            keep=numbers("keep"),
            diverged=diverged,
            ended=diverged | dominated | (status == "COMPLETE"),
        )

    def kept(self, rows: Rows) -> int | None:
        """The least ``keep`` of the rows' studies; None where stopping was off in all."""
        known = self.keep[rows]
        known = known[np.isfinite(known)]
        return int(known.min()) if len(known) else None

    def cutoff(self, rows: Rows, keep: int | None) -> float:
        """X(keep) of the rows: beyond it, what is known depends on the order of training."""
        return last_exact(self.steps[rows], keep)

    def infeasible(self, rows: Rows, cutoff: float) -> np.ndarray:
        """A trial that diverged after the last exact order statistic would have been cut off
        before, had it been trained later: it counts as feasible."""
        return self.diverged[rows] & (self.steps_run[rows] <= cutoff)

    def feasible(self, rows: Rows) -> Rows:
        """The trials of one search that count towards N, in the sequence's order."""
        rows = rows[np.argsort(self.index[rows], kind="stable")]
        cutoff = self.cutoff(rows, self.kept(rows))
        return rows[self.ended[rows] & ~self.infeasible(rows, cutoff)]

    def rates(self, hit: Rows) -> tuple[float, ...]:
        """Learning rates of the best of the trials ``hit``, best first."""
        best = hit[np.argsort(self.steps[hit], kind="stable")][:BAR]
        pairs = (
            (
                _number(self.rows["effective_learning_rate"][i]),
                _number(self.rows["learning_rate"][i]),
            )
            for i in best
        )
        found = (plain if effective is None else effective for effective, plain in pairs)
        return tuple(rate for rate in found if rate is not None)


def best_of(
    runs: Runs, batch_size: int, searches: Sequence[Rows], n: int, over: Sequence[str]
) -> Point:
    """The point of one or several searches: the best of the first ``n`` feasible of each."""
    counted = [runs.feasible(rows) for rows in searches]
    used = np.concatenate([rows[:n] for rows in counted])
    cutoff = runs.cutoff(used, runs.kept(np.concatenate(searches)))
    infeasible = 0
    for rows, some in zip(searches, counted, strict=True):
        # Those drawn on the way to the n-th feasible trial.
        last = runs.index[some[n - 1]] if len(some) >= n > 0 else np.inf
        drawn = rows[runs.ended[rows] & (runs.index[rows] <= last)]
        infeasible += int(runs.infeasible(drawn, cutoff).sum())
    hit = used[runs.steps[used] <= cutoff]
    common: dict[str, Any] = {
        "batch_size": batch_size,
        "trials": len(used),
        "available": sum(len(rows) for rows in counted),
        "ran": len(used) + infeasible,
        "infeasible": infeasible,
    }
    if not len(hit):
        return Point(steps=None, **common)
    best = hit[np.argmin(runs.steps[hit])]
    row = {name: cells[best] for name, cells in runs.rows.items()}
    steps, last_miss = float(runs.steps[best]), _number(runs.last_miss[best])
    algorithm = {name: row[name] for name in over if isinstance(row[name], str)}
    return Point(
        steps=steps,
        last_miss=last_miss,
        fourth=order_statistic(runs.steps[hit], BAR),
        hits=len(hit),
        best={**algorithm, **parameters(row["metaparameters"])},
        trial=row["trial"],
        learning_rate=_number(row["learning_rate"]),
        effective_learning_rate=_number(row["effective_learning_rate"]),
        rates=runs.rates(hit),
        middles=(middle(steps, last_miss),),
        **common,
    )


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
        middles=tuple(map(middle, found, runs.last_miss[hit].tolist())),
    )


def _number(value: Any) -> float | None:
    if value is None or value is pd.NA or value != value:
        return None
    return float(value)
