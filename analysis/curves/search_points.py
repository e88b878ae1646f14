"""The points of a curve's searches, and what has to be said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from analysis.curves import repeats as again
from analysis.curves import trials_needed
from analysis.curves.estimators import BEST_OF_10, MEDIAN, MINIMUM, EstimatorError, check
from analysis.curves.points import Point, of_searches
from analysis.curves.runs import Rows, Runs
from analysis.curves.searches import Searches, chosen, searches, shared
from analysis.formatting import sizes
from results.counts import agreeing, count

_FEW = 4
"""Fewer trials than these say nothing of whether they were enough."""


def estimator(runs: Runs, rows: Rows, asked: str | None, notes: list[str]) -> str:
    """What stands for a batch size: what was asked for, else what all trials name, else the
    minimum.

    Raises:
        EstimatorError: no such estimator.
    """
    if asked is not None:
        return check(asked)
    named = sorted({name for name in runs.rows["estimator"][rows] if isinstance(name, str)})
    if len(named) > 1:
        several = " and ".join(named)
        notes.append(f"the trials name several estimators, {several}: this is the minimum")
    return check(named[0]) if len(named) == 1 else MINIMUM


def withheld(runs: Runs, rows: Rows) -> str | None:
    """Why the trials are not drawn alike, which intervals from single trials take for granted;
    None where they are."""
    methods = sorted({name for name in runs.rows["search"][rows] if isinstance(name, str)})
    adaptive = [name for name in methods if name.startswith("optuna")]
    if adaptive:
        return f"each trial of an adaptive search ({', '.join(adaptive)}) depends on those before"
    # A grid is a shuffle: any part of it is a random one.
    return "the trials were chosen by hand, not drawn (points)" if "points" in methods else None


def points(
    runs: Runs,
    rows: Rows,
    over: tuple[str, ...],
    notes: list[str],
    *,
    estimator: str,
    reason: str | None,
) -> tuple[list[Point], int]:
    """The point of each batch size at the N that all share, and that N.

    ``reason``: why the trials are not drawn alike, None where they are.

    Raises:
        EstimatorError: the trials do not carry the estimator.
    """
    if estimator == BEST_OF_10 and reason is not None:
        raise EstimatorError(
            f"best_of_10 takes trials that were drawn alike, and {reason}",
            hint="take --estimator minimum",
        )
    parts = searches(runs, rows, over)
    many, n = shared(parts)
    used = {
        size: {name: chosen(some, many) for name, some in each.items()}
        for size, each in parts.items()
    }
    found = [
        of_searches(runs, size, each, n, over, estimator=estimator, exchangeable=reason is None)
        for size, each in used.items()
    ]
    notes += _several(parts, many, n, estimator)
    notes += _cut_to(used, n)
    if over:
        notes += _minimized(over, used, n)
    notes += _odd(found)
    if reason is not None:
        notes.append(
            f"point error bars and the budget check are withheld: {reason}; the regimes' "
            "intervals rest on the scatter of the batch sizes about the knee, and stand"
        )
    elif estimator == MINIMUM:
        checked = [(point.batch_size, point.budget) for point in found if point.budget]
        text = trials_needed.note([(size, b) for size, b in checked if b.trials >= _FEW])
        notes += [text] if text else []
    if estimator == MEDIAN:
        return found, n
    return found, max((point.trials - point.enlarged for point in found), default=0)


def with_repeats(
    found: Sequence[Point], runs: Runs, rows: Rows, over: Sequence[str], notes: list[str]
) -> list[Point]:
    """The points with the repeats (``rows``) of their best configurations; never in a minimum."""
    if not len(rows):
        return list(found)
    notes.append(f"{len(rows)} repeated runs are not part of the minima")
    sizes_, others, seen = runs.rows["batch_size"][rows].astype(np.int64), 0, []
    for point in found:
        best = {name: value for name, value in point.best.items() if name not in over}
        mine = rows[sizes_ == point.batch_size]
        repeats, other = again.of_best(runs, mine, best, point.study)
        others += other
        seen.append(replace(point, repeats=repeats))
    pairs = [(p.minimum, p.repeats) for p in seen if p.repeats is not None]
    text = again.note([(least, each) for least, each in pairs if least is not None])
    notes += [text] if text else []
    if others:
        notes.append(f"{others} of the repeated runs are of other configurations than the best")
    return seen


def _several(parts: Searches, many: int, n: int, estimator: str) -> list[str]:
    """Notes on studies that were searched more than once."""
    notes = []
    if many > 1:
        what = "the median of their minima" if estimator == MEDIAN else "that of all their trials"
        notes.append(
            f"each study was searched {count(many, 'time')}, with "
            f"{count(n, 'feasible trial')} each: each point is {what}"
        )
    elif estimator == MEDIAN:
        notes.append("each study was searched once: the median of the searches is its minimum")
    left = sum(max(0, len(some) - many) for each in parts.values() for some in each.values())
    if left:
        which = count(left, "search")
        notes.append(f"{which} with too few trials to count at all batch sizes: left out")
    return notes


def _cut_to(used: Searches, n: int) -> list[str]:
    counts = {
        size: [search.available for some in each.values() for search in some]
        for size, each in used.items()
    }
    most = max((trials for each in counts.values() for trials in each), default=0)
    if most <= n:
        return []
    few = [size for size, each in counts.items() if n in each]
    return [
        f"each point is the best of the first {count(n, 'feasible trial')}: "
        f"{sizes(few)} {agreeing(len(few), 'have')} no more, others up to {most}"
    ]


def _minimized(over: Sequence[str], used: Searches, n: int) -> list[str]:
    algorithms = dict.fromkeys(name for each in used.values() for name in each)
    trials: Mapping[str, int] = {
        name: max(
            n * sum(search.available > 0 for search in each.get(name, ())) for each in used.values()
        )
        for name in algorithms
    }
    each_n = ", ".join(f"{name or 'none'} (N = {trials[name]})" for name in algorithms)
    notes = [f"minimized over {' and '.join(over)}: {each_n}"]
    lacking = [size for size, each in used.items() if len(each) < len(algorithms)]
    if lacking:
        notes.append(f"fewer training algorithms ran at {sizes(lacking)}")
    return notes


def _odd(found: Sequence[Point]) -> list[str]:
    """Notes on points that are not what the others are."""
    notes = []
    barren = [point.batch_size for point in found if not point.trials]
    if barren:
        notes.append(f"no trial stayed feasible at {sizes(barren)}")
    larger = [point for point in found if point.enlarged]
    if larger:
        more = sorted({point.enlarged for point in larger})
        added = f"{more[0]} to " if len(more) > 1 else ""
        added += count(more[-1], "more trial")
        notes.append(
            f"the search space was enlarged at {sizes([p.batch_size for p in larger])}: {added} "
            "there, at the same density"
        )
    unsure = [p.batch_size for p in found if not p.exact and p.minimum is not None]
    if unsure:
        notes.append(
            f"the best of these trials may be lower at {sizes(unsure)}: trials among them were "
            "dominated by others that are not"
        )
    rare = [point for point in found if point.censored and point.minimum is not None]
    if rare:
        notes.append(
            f"searches like these would mostly miss the target at "
            f"{sizes([point.batch_size for point in rare])}, where few trials reached it"
        )
    if any(point.refined is not None for point in found):
        notes.append(
            "brackets that were walked again on a finer grid are in refined_steps: another "
            "estimand, in no fit and no minimum"
        )
    return notes
