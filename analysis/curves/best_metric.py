"""The best value of a metric that a search had within a budget, from measurements.

Of each batch size the first N feasible trials count, N as of a curve: the most that all batch
sizes share. The value is the best look of any of them at or before the budget's last step. One
that was stopped before that (at its target, dominated, or by a budget of its own) may have had a
better look later: the value is not known then, and the point says how many trials and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.curves.curve import prepared
from analysis.curves.groups import Grouping, grouping, labels, target
from analysis.curves.limits import Limit, steps_within
from analysis.curves.points import SEARCHED
from analysis.curves.runs import Rows, Runs, number
from analysis.curves.searches import chosen, searches, shared
from analysis.curves.thinned_evaluations import Evaluations
from analysis.formatting import unit
from results.storage.dataset import retrying
from results.targets.target import Target

Numbers = NDArray[np.float64]

AT_TARGET = "stopped at the target"
DOMINATED = "dominated"
SOONER = "budget ended sooner"
DIVERGED = "diverged"
UNMEASURED = "no measurements"
TOO_SOON = "no look so soon"


@dataclass(frozen=True, kw_only=True)
class BestPoint:
    """The best value at one batch size."""

    batch_size: int
    value: float | None
    """None: not known, for ``why``."""
    bound: float | None
    """The best that was seen: the value is this or better."""
    limit: float | None
    """The last step that counts; None where each trial's own budget is the limit."""
    trials: int
    """How many count."""
    trial: str | None = None
    step: float | None = None
    """Where the best was seen first."""
    why: Mapping[str, int] = field(default_factory=dict)
    """Why the value is not known: trials by reason."""

    @property
    def told(self) -> str:
        """``why`` in words: "3 stopped at the target, 1 dominated"."""
        return ", ".join(f"{count} {reason}" for reason, count in self.why.items())


@dataclass(frozen=True, kw_only=True)
class BestCurve:
    """The best values of one workload and training algorithm under one limit."""

    group: Mapping[str, Any]
    label: str
    target: Target
    """Whose metric it is, and which way is better."""
    limit: Limit | None
    points: tuple[BestPoint, ...]
    trials: int
    """N: the feasible trials that count at each batch size."""
    example_unit: str = "example"

    @property
    def unknown(self) -> list[int]:
        """Batch sizes at which the best is not known."""
        return [point.batch_size for point in self.points if point.value is None]


@dataclass(frozen=True)
class _Counted:
    """Trials that count, of all curves: their places in ``Runs``, each limit's last step, and how
    they ended; the best value so far and its step are (n, limits)."""

    rows: Rows
    last: Numbers
    best: Numbers
    step: Numbers
    measured: NDArray[np.bool_]


def best_metrics(
    trials: pd.DataFrame,
    measured: Evaluations,
    limits: Sequence[Limit | None],
    *,
    by: Sequence[str] | None = None,
) -> list[BestCurve]:
    """The best of each curve's metric under each limit; None is each trial's own budget.

    Curves are those of ``analysis.curves`` (``by`` too), without those of repeated runs alone and
    those of which no metric is recorded; the limits of one stand together, in their order.
    Measurements are passed over once a metric, batch by batch.

    Raises:
        ResultsError: a limit in epochs, and a training set of unknown size.
    """
    wide, _ = prepared(trials, by)
    groups = grouping(wide, by)
    runs = Runs.of(wide.frame)
    parts = [
        (group, rows[np.isin(runs.rows["role"][rows], SEARCHED)], goal)
        for group, rows in groups.split(wide.frame)
        if (goal := target(runs.rows, rows)) is not None
    ]
    parts = [part for part in parts if len(part[1])]
    counted = [_first(runs, rows, groups) for _, rows, _ in parts]
    texts = labels([group for group, _, _ in parts], [str(goal) for _, _, goal in parts])
    found: list[BestCurve] = []
    seen = _seen(
        wide.frame, measured, limits, [(c, part[2]) for c, part in zip(counted, parts, strict=True)]
    )
    for (group, rows, goal), text, (sizes, n), one in zip(parts, texts, counted, seen, strict=True):
        for column, limit in enumerate(limits):
            points = [
                _point(runs, one, size, mine, column, limit, goal) for size, mine in sizes.items()
            ]
            found.append(
                BestCurve(
                    group=group, label=text, target=goal, limit=limit, points=tuple(points),
                    trials=n, example_unit=unit(runs.rows["example_unit"][rows]),
                )
            )  # fmt: skip
    return found


def _first(runs: Runs, rows: Rows, groups: Grouping) -> tuple[dict[int, Rows], int]:
    """The rows that count at each batch size, and N."""
    parts = searches(runs, rows, groups.over)
    many, n = shared(parts)
    return {
        size: np.concatenate(
            [
                search.feasible(np.concatenate(search.first(n)))
                for some in each.values()
                for search in chosen(some, many)
            ]
        )
        for size, each in parts.items()
    }, n


def _seen(
    frame: pd.DataFrame,
    measured: Evaluations,
    limits: Sequence[Limit | None],
    counted: Sequence[tuple[tuple[dict[int, Rows], int], Target]],
) -> list[_Counted]:
    """Of each curve the best looks of its trials."""
    rows = [np.concatenate([*sizes.values()]) for (sizes, _), _ in counted]
    made: list[_Counted | None] = [None] * len(counted)
    kinds: dict[tuple[str, bool], list[int]] = {}
    for i, (_, goal) in enumerate(counted):
        kinds.setdefault((goal.metric, goal.lower_is_better), []).append(i)
    for (metric, lower), which in kinds.items():
        every = np.concatenate([rows[i] for i in which])
        some = frame.iloc[every]
        last = np.column_stack(
            [
                np.full(len(every), np.inf) if one is None else steps_within(some, one)
                for one in limits
            ]
        )
        best, step, known = _best_looks(
            some["trial"].to_numpy(object), measured, metric, last, lower
        )
        ends = np.cumsum([len(rows[i]) for i in which])
        for i, end in zip(which, ends, strict=True):
            at = slice(end - len(rows[i]), end)
            made[i] = _Counted(rows[i], last[at], best[at], step[at], known[at])
    return [one for one in made if one is not None]


def _best_looks(
    trials: NDArray[np.object_], measured: Evaluations, metric: str, last: Numbers, lower: bool
) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """The best value of each of ``trials`` up to each of its ``last`` steps (n, limits) and the
    first step that has it; infinite and NaN where there is none; and whether any look has one."""
    names, place = np.unique(trials.astype(str), return_inverse=True)
    # Rows of one trial ask for it under the same limits: its batch size is part of it.
    upto = np.full((len(names), last.shape[1]), np.inf)
    upto[place] = last
    sign = 1.0 if lower else -1.0

    def read() -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
        best, step = np.full(upto.shape, np.inf), np.full(upto.shape, np.nan)
        known = np.zeros(len(names), bool)
        for batch in measured.of(names.tolist(), metric) if len(names) else ():
            assert batch.value is not None
            batch = batch.rows(~np.isnan(batch.value))
            if not len(batch.step):
                continue
            assert batch.value is not None
            of, value = batch.by_row(batch.trial), sign * batch.value
            known[batch.trial] = True
            for column in range(upto.shape[1]):
                early = np.flatnonzero(batch.step <= upto[of, column])
                # The best of each trial first, and of equal ones the earliest.
                order = early[np.lexsort((batch.step[early], value[early], of[early]))]
                firsts = order[np.unique(of[order], return_index=True)[1]]
                where, new, at = of[firsts], value[firsts], batch.step[firsts]
                old, when = best[where, column], step[where, column]
                better = (new < old) | ((new == old) & (at < when))
                best[where[better], column] = new[better]
                step[where[better], column] = at[better]
        return sign * best, step, known

    best, step, known = retrying(read)
    return best[place], step[place], known[place]


def _point(
    runs: Runs, one: _Counted, size: int, rows: Rows, column: int, limit: Limit | None, goal: Target
) -> BestPoint:
    mine = np.flatnonzero(np.isin(one.rows, rows))
    last, best = one.last[mine, column], one.best[mine, column]
    why: Counter[str] = Counter()
    for place, upto in zip(mine, last, strict=True):
        reason = _unknown(runs, one.rows[place], upto) if one.measured[place] else UNMEASURED
        why.update([reason] if reason else [])
    some = np.isfinite(best)
    if not why and not some.any():
        why[TOO_SOON] = len(mine)
    first = None
    if some.any():
        order = np.lexsort((one.step[mine, column], best if goal.lower_is_better else -best))
        first = mine[order[0]]
    bound = None if first is None else float(one.best[first, column])
    return BestPoint(
        batch_size=size,
        value=None if why else bound,
        bound=bound,
        limit=None if limit is None or not len(last) else float(last[0]),
        trials=len(mine),
        trial=None if first is None else runs.rows["trial"][one.rows[first]],
        step=None if first is None else float(one.step[first, column]),
        why=dict(sorted(why.items())),
    )


def _unknown(runs: Runs, row: np.intp, last: float) -> str | None:
    """Why the looks of a trial up to the step ``last`` are not all there; None where they are."""
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
