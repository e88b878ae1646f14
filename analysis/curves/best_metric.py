"""The best value of a metric that a search reached within a budget, from measurements.

At each batch size the first N feasible trials count, with the N of a curve: the most that all batch
sizes share. The value is the best evaluation of any of them at or before the budget's last step.
One that was stopped before that (at its target, dominated, or by its smaller budget) may have had a
better one later: the value is not known then, and the point says how many trials and why. The same
holds where an evaluation ended after a part of its split, unless its interval says that it was no
better: its mean is no value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves.curve import prepared
from analysis.curves.groups import grouping, labels, target
from analysis.curves.limits import Limit, steps_within
from analysis.curves.points import SEARCH_ROLES
from analysis.curves.runs import Rows, Runs, number
from analysis.curves.samples import largest, searches
from analysis.curves.search_points import counted
from analysis.formatting import unit
from results.targets.evaluations import Evaluations
from results.targets.target import Target

AT_TARGET = "stopped at the target"
DOMINATED = "dominated"
SOONER = "budget ended sooner"
DIVERGED = "diverged"
UNMEASURED = "no measurements"
TOO_SOON = "no evaluation so soon"
PARTIAL = "evaluated in part"

_WITHIN = """
SELECT *, step <= upto AND NOT partial AS whole, step <= upto AND partial AS part
FROM evaluations WHERE value IS NOT NULL"""


@dataclass(frozen=True, kw_only=True)
class BestPoint:
    """The best value at one batch size."""

    batch_size: int
    value: float | None
    """None if it is not known; ``why`` has the reasons."""
    bound: float | None
    """The best measured value; the true best is this or better."""
    limit: float | None
    """The last step that counts; None if the budget of each trial is the limit."""
    trials: int
    """Number of trials that count."""
    trial: str | None = None
    step: float | None = None
    """The trial and step at which the best was measured first."""
    why: Mapping[str, int] = field(default_factory=dict)
    """Why the value is not known: trials by reason."""

    @property
    def why_text(self) -> str:
        """``why`` as text: "3 stopped at the target, 1 dominated"."""
        return ", ".join(f"{count} {reason}" for reason, count in self.why.items())


@dataclass(frozen=True, kw_only=True)
class BestCurve:
    """The best values of one workload and training algorithm under one limit."""

    group: Mapping[str, Any]
    label: str
    target: Target
    """The target that names the metric and its better direction."""
    limit: Limit | None
    points: tuple[BestPoint, ...]
    trials: int
    """N: the feasible trials that count at each batch size."""
    example_unit: str = "example"


@dataclass(frozen=True)
class _Counted:
    """The trials of a curve that count."""

    group: dict[str, Any]
    goal: Target
    unit: str
    sizes: tuple[int, ...]
    n: int


def best_metrics(
    trials: pd.DataFrame,
    measured: Evaluations,
    limits: Sequence[Limit | None],
    *,
    by: Sequence[str] | None = None,
) -> list[BestCurve]:
    """The best of each curve's metric under each limit; None is the budget of each trial.

    Curves are those of ``analysis.curves`` (``by`` too), without those of repeated runs alone and
    those of which no metric is recorded; the limits of one stand together, in their order.
    Measurements are read once a metric, batch by batch.

    Raises:
        ResultsError: a limit in epochs, and a training set of unknown size.
    """
    wide, _ = prepared(trials, by)
    groups = grouping(wide, by)
    runs = Runs.of(wide.frame)
    # A trial that diverged, after its target too, has no best of its whole budget.
    runs = replace(runs, diverged=wide.frame["status"].eq("INFEASIBLE").to_numpy(dtype=bool))
    counted: list[_Counted] = []
    parts: list[pd.DataFrame] = []
    for group, rows in groups.split(wide.frame):
        rows = rows[runs.replicate[rows] == 0]  # as many trials as the others have
        search, goal = rows[np.isin(runs.rows["role"][rows], SEARCH_ROLES)], target(runs.rows, rows)
        if goal is None or not len(search):
            continue
        by_size, n = _first(runs, search, groups.over)
        place = np.concatenate([*by_size.values()])
        size = np.repeat([*by_size], [len(each) for each in by_size.values()])
        for column, limit in enumerate(limits):
            last = np.inf if limit is None else steps_within(wide.frame.iloc[place], limit)
            part = pd.DataFrame({"place": place, "size": size, "last": last, "limit": column})
            part = part.assign(metric=goal.metric, lower=goal.lower_is_better, curve=len(counted))
            parts.append(part)
        example_unit = unit(runs.rows["example_unit"][search])
        counted.append(_Counted(group, goal, example_unit, tuple(by_size), n))
    if not counted:
        return []
    wanted = pd.concat(parts, ignore_index=True)
    kinds = wanted.groupby(["metric", "lower"], sort=False)
    best = [_bests(runs, part, measured) for _, part in kinds]
    bests = pd.concat(best) if best else wanted
    by_point = dict(iter(bests.groupby(["curve", "limit", "size"])))
    texts = labels([each.group for each in counted], [str(each.goal) for each in counted])
    return [
        BestCurve(
            group=each.group,
            label=text,
            target=each.goal,
            limit=limit,
            points=tuple(
                _point(runs, size, by_point.get((k, column, size)), limit, each.goal)
                for size in each.sizes
            ),
            trials=each.n,
            example_unit=each.unit,
        )
        for k, (each, text) in enumerate(zip(counted, texts, strict=True))
        for column, limit in enumerate(limits)
    ]


def _first(runs: Runs, rows: Rows, over: Sequence[str]) -> tuple[dict[int, Rows], int]:
    """The rows that count at each batch size, and N."""
    parts = searches(runs, rows, over)
    many, n = counted(runs, rows, {0.0: parts})
    return {
        size: np.concatenate(
            [
                search.feasible(np.concatenate(search.first(n)))
                for each in algorithms.values()
                for search in largest(each, many)
            ]
        )
        for size, algorithms in parts.items()
    }, n


def _bests(runs: Runs, wanted: pd.DataFrame, measured: Evaluations) -> pd.DataFrame:
    """``wanted`` (places in ``runs`` with a ``last`` step each, of one metric) with ``best``, the
    best value up to it (of none the worst, infinite), and its first ``step``; ``possible``, the
    best that evaluations of a part of a split up to it may have had; and whether the trial is
    ``measured``."""
    metric, lower = wanted.iloc[0][["metric", "lower"]]
    cost, bound, sign = ("value", "low", 1.0) if lower else ("-value", "-high", -1.0)
    bests = measured.select(
        f"SELECT row, best, possible, min(step) FILTER (whole AND {cost} = best) AS step "
        f"FROM ({_WITHIN}) JOIN bests USING (row) GROUP BY row, best, possible",
        {"trial": runs.rows["trial"][wanted["place"]], "upto": wanted["last"]},
        metric,
        first={
            "bests": f"SELECT row, min({cost}) FILTER (whole) AS best, "
            f"min({bound}) FILTER (part) AS possible FROM ({_WITHIN}) GROUP BY row"
        },
    )
    known = np.isin(np.arange(len(wanted)), bests["row"])
    bests = bests.set_index("row").astype(float).reindex(range(len(wanted))).set_axis(wanted.index)
    ends = sign * bests[["best", "possible"]].fillna(np.inf)
    return wanted.join(ends).assign(step=bests["step"], measured=known)


def _point(
    runs: Runs, size: int, bests: pd.DataFrame | None, limit: Limit | None, goal: Target
) -> BestPoint:
    if bests is None:
        why_none = {TOO_SOON: 0}
        return BestPoint(
            batch_size=size, value=None, bound=None, limit=None, trials=0, why=why_none
        )
    rows, last, best, step, possible = (
        bests[name].to_numpy() for name in ("place", "last", "best", "step", "possible")
    )
    why: Counter[str] = Counter()
    known = best[np.isfinite(best)]
    least = known.min(initial=np.inf) if goal.lower_is_better else known.max(initial=-np.inf)
    better = possible < least if goal.lower_is_better else possible > least
    for row, upto, measured, hidden in zip(rows, last, bests["measured"], better, strict=True):
        reason = _unknown(runs, row, upto) if measured else UNMEASURED
        reason = reason or (PARTIAL if hidden else None)
        why.update([reason] if reason else [])
    first: np.intp | None = None
    if len(known):
        first = np.lexsort((step, best if goal.lower_is_better else -best))[0]
    elif not why:
        why[TOO_SOON] = len(rows)
    bound = None if first is None else float(best[first])
    return BestPoint(
        batch_size=size,
        value=None if why else bound,
        bound=bound,
        limit=None if limit is None else float(last[0]),
        trials=len(rows),
        trial=None if first is None else runs.rows["trial"][rows[first]],
        step=None if first is None else float(step[first]),
        why=dict(sorted(why.items())),
    )


def _unknown(runs: Runs, row: np.intp, last: float) -> str | None:
    """Why the evaluations of a trial up to the step ``last`` are not all recorded; None where they
    are."""
    ran = number(runs.steps_run[row])
    if ran is not None and ran >= last:
        return None
    if runs.dominated[row]:
        return DOMINATED
    if runs.diverged[row]:
        return DIVERGED
    stops = runs.rows["stop_at_target"][row] if "stop_at_target" in runs.rows else None
    goes_on = not pd.isna(stops) and not stops
    if runs.rows["stop_reason"][row] == "target" and not goes_on:
        return AT_TARGET
    return SOONER if np.isfinite(last) else None
