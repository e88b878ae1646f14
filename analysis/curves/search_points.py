"""The points of a curve from its searches or its repeated runs, with the notes on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.curves.estimators import (
    BEST_OF_10,
    MEDIAN,
    MINIMUM,
    NAMES,
    EstimatorError,
    budget_note,
)
from analysis.curves.points import Point, of_runs, of_searches, pooled
from analysis.curves.runs import Repeats, Rows, Runs, parameters, repeats_of_best
from analysis.curves.samples import Searches, largest, searches, shared
from analysis.notes import Note, note_at
from results.counts import count
from results.errors import nearest
from results.user_tables.trials import TABLE

_FEW = 4
"""Fewer trials than this cannot show whether they were enough."""


@dataclass(frozen=True, kw_only=True)
class CurvePoints:
    """The points of one curve."""

    points: list[Point]
    """One a batch size, ascending."""
    trials: int
    """N: feasible trials a point; 1 where every run is a point of its own."""
    estimator: str
    withheld: str | None
    """Why the trials are not drawn alike; None where they are."""
    notes: list[Note]


def points(
    runs: Runs, search: Rows, repeats: Rows, over: tuple[str, ...], requested: str | None
) -> CurvePoints:
    """The point of each batch size at the N that all share; without a search of repeated runs.

    Args:
        search, repeats: the curve's trials of searches, and its repeated runs.
        over: columns of the training algorithm that are minimized over.
        requested: the estimator; None for the one that the trials name.

    Raises:
        EstimatorError: no such estimator, or the trials do not carry it.
    """
    notes: list[Note] = []
    estimator = _estimator(runs, search, requested, notes)
    withheld = _withheld(runs, search)
    if not len(search):
        if requested is not None:
            notes.append(Note("runs", estimator=requested))
        tested = runs.rows["batch_size"][repeats].astype(np.int64)
        of_repeats = [
            of_runs(runs, int(size), repeats[tested == size]) for size in np.unique(tested)
        ]
        return CurvePoints(
            points=of_repeats, trials=1, estimator=estimator, withheld=withheld, notes=notes
        )
    if estimator == BEST_OF_10 and withheld is not None:
        raise EstimatorError(
            f"best_of_10 needs trials that were drawn alike, and {withheld}",
            hint="take --estimator minimum",
        )
    by_replicate = _by_replicate(runs, search, over)
    many, n = counted(runs, search, by_replicate)
    if withheld is not None and len(ended := {*_ended(by_replicate)}) > 1:
        notes.append(Note("unequal_n", n=(min(ended), n)))
    made: dict[int, list[Point]] = {}
    others = 0
    for number, parts in by_replicate.items():
        used = {
            size: {name: largest(each, many) for name, each in algorithms.items()}
            for size, algorithms in parts.items()
        }
        of_search = [
            of_searches(
                runs, size, algorithms, n, over, estimator=estimator, exchangeable=withheld is None
            )
            for size, algorithms in used.items()
        ]
        again = repeats[runs.replicate[repeats] == number]
        of_search, other = _with_repeats(of_search, runs, again, over)
        others += other
        for point in of_search:
            made.setdefault(point.batch_size, []).append(point)
        notes += _search_notes(parts, used, many, n, estimator)
        notes += _minimized(over, used, n) if over else []
    notes += _settings(runs, search)
    every = [pooled(made[size]) for size in sorted(made)]
    notes = [*dict.fromkeys(notes), *_replicate_notes(every)]
    notes += _point_notes(every)
    if withheld is not None:
        notes.append(Note("withheld", why=withheld))
    elif estimator == MINIMUM:
        budgets = [(point.batch_size, point.budget) for point in every if point.budget]
        note = budget_note([(size, each) for size, each in budgets if each.trials >= _FEW])
        notes += [note] if note else []
    if len(repeats):
        notes += _repeat_notes([point for each in made.values() for point in each], repeats, others)
    largest_n = max((point.trials - point.enlarged for point in every), default=0)
    return CurvePoints(
        points=every,
        trials=n if estimator == MEDIAN else largest_n,
        estimator=estimator,
        withheld=withheld,
        notes=notes,
    )


def counted(runs: Runs, rows: Rows, by_replicate: Mapping[float, Searches]) -> tuple[int, int]:
    """How many searches of a study, and how many feasible trials of each, count at every batch
    size of the curve that the searches ``rows`` are: the least that the replicates share."""
    many, n = (min(each) for each in zip(*map(shared, by_replicate.values()), strict=True))
    ended = [*_ended(by_replicate)]
    if _withheld(runs, rows) or (_methods(runs, rows) == ["grid"] and len({*ended}) == 1):
        # They were chosen, and the first n of them are no search: one that diverged was tried too.
        n = max(ended, default=n)
    return many, n


def _estimator(runs: Runs, rows: Rows, requested: str | None, notes: list[Note]) -> str:
    """The estimator of a batch size: the requested one, else the one that all trials name, else the
    minimum."""
    named = sorted({name for name in runs.rows["estimator"][rows] if isinstance(name, str)})
    if requested is None and len(named) > 1:
        notes.append(Note("estimators", names=" and ".join(named)))
    estimator = named[0] if len(named) == 1 else MINIMUM
    if requested is not None:
        estimator = requested
    if estimator not in NAMES:
        raise EstimatorError(
            f"no estimator is called {estimator!r}",
            hint=nearest(estimator, NAMES, f"estimators: {', '.join(NAMES)}"),
        )
    return estimator


def _methods(runs: Runs, rows: Rows) -> list[str]:
    return sorted({name for name in runs.rows["search"][rows] if isinstance(name, str)})


def _ended(by_replicate: Mapping[float, Searches]) -> Iterator[int]:
    """How many trials of each search ended, but of those of which none is feasible."""
    for parts in by_replicate.values():
        for algorithms in parts.values():
            for each in algorithms.values():
                yield from (len(search.original) for search in each if search.available)


def _withheld(runs: Runs, rows: Rows) -> str | None:
    """Why the trials are not drawn alike, which intervals from single trials take for granted;
    None where they are."""
    methods = _methods(runs, rows)
    if TABLE in methods:
        return "the trials are rows of a table, not drawn alike"
    # A grid is a shuffle: any part of it is a random one.
    return "the trials were chosen by hand, not drawn (points)" if "points" in methods else None


def _settings(runs: Runs, rows: Rows) -> list[Note]:
    """A note on the settings of a user's table that are minimized over."""
    if TABLE not in runs.rows["search"][rows]:
        return []
    chosen = [parameters(text) for text in runs.rows["metaparameters"][rows]]
    names = sorted({name for each in chosen for name in each})
    values = {name: {each.get(name) for each in chosen} for name in names}
    several = {name: len(each) for name, each in values.items() if len(each) > 1}
    if not several:
        return []
    each = " and ".join(f"{name} ({count(n, 'value')})" for name, n in several.items())
    return [Note("settings", names=each, by=next(iter(several)))]


def _by_replicate(runs: Runs, rows: Rows, over: Sequence[str]) -> dict[float, Searches]:
    """The searches of each replicate of a baseline; without one of which no trial counts yet."""
    numbers = runs.replicate[rows]
    parts = {
        float(number): searches(runs, rows[numbers == number], over)
        for number in np.unique(numbers)
    }
    begun = {number: each for number, each in parts.items() if shared(each)[1]}
    return begun or dict([*parts.items()][:1])


def _with_repeats(
    points: Sequence[Point], runs: Runs, rows: Rows, over: Sequence[str]
) -> tuple[list[Point], int]:
    """The points with the repeats (``rows``) of their best configurations, never in a minimum; and
    how many there are of others."""
    tested, others, with_repeats = runs.rows["batch_size"][rows].astype(np.int64), 0, []
    for point in points:
        best = {name: value for name, value in point.best.items() if name not in over}
        repeats, other = repeats_of_best(runs, rows[tested == point.batch_size], best, point.study)
        others += other
        with_repeats.append(replace(point, repeats=repeats))
    return with_repeats, others


def _repeat_notes(points: Sequence[Point], rows: Rows, others: int) -> list[Note]:
    """Notes on the repeated runs ``rows``, of which ``others`` are not of a best configuration."""
    again = repeats_note(
        [
            (point.minimum, point.repeats)
            for point in points
            if point.minimum is not None and point.repeats is not None
        ]
    )
    notes = [Note("repeats", n=len(rows)), *([again] if again else [])]
    return notes + [Note("repeats_of_others", n=others)] * (others > 0)


def _replicate_notes(points: Sequence[Point]) -> list[Note]:
    """Notes on searches that a design repeats."""
    most = max((len(point.replicates) for point in points), default=0)
    if most < 2:
        return []
    known = [
        (variance, len(point.replicates) - 1)
        for point in points
        if not point.censored and (variance := point.log_variance) is not None
    ]
    notes = []
    if known:
        freedom = sum(degrees for _, degrees in known)
        deviation = math.sqrt(sum(each * degrees for each, degrees in known) / freedom)
        notes.append(Note("replicates", n=most, scatter=math.expm1(deviation)))
    missed = [point.batch_size for point in points if point.replicates and point.censored]
    return notes + note_at("replicate_missed", missed)


def repeats_note(pairs: Sequence[tuple[float, Repeats]]) -> Note | None:
    """On the luck in the minima: each search's least steps against its repeats."""
    pairs = [(least, each) for least, each in pairs if least > 0]  # no ratio to no step
    ratios = [each.median / least for least, each in pairs if each.median is not None]
    if not ratios:
        return None
    spread = f"the median of {count(len(ratios), 'search')}, {min(ratios):.2f} to {max(ratios):.2f}"
    missed = len(pairs) - len(ratios)
    return Note(
        "trained_again",
        times=float(np.median(ratios)),
        spread=f" ({spread})" if len(ratios) > 1 else "",
        missed=f"; at {missed} it mostly misses the target" if missed else "",
    )


def _search_notes(parts: Searches, used: Searches, many: int, n: int, estimator: str) -> list[Note]:
    """Notes on studies that were searched more than once, and on searches of unequal length."""
    notes = []
    if many > 1:
        what = "the median of their minima" if estimator == MEDIAN else "that of all their trials"
        notes.append(Note("searched", times=many, n=n, point=what))
    elif estimator == MEDIAN:
        notes.append(Note("searched_once"))
    left_out = sum(max(0, len(each) - many) for by in parts.values() for each in by.values())
    if left_out:
        notes.append(Note("short_searches", n=left_out))
    available = {
        size: [search.available for each in algorithms.values() for search in each]
        for size, algorithms in used.items()
    }
    most = max((trials for each in available.values() for trials in each), default=0)
    if most > n:
        few = [size for size, each in available.items() if n in each]
        notes.append(Note("first_trials", n=n, at=few, most=most))
    return notes


def _minimized(over: Sequence[str], used: Searches, n: int) -> list[Note]:
    """Notes on the training algorithms that are minimized over, with the trials of each."""
    algorithms = dict.fromkeys(name for each in used.values() for name in each)
    trials: Mapping[str, int] = {
        name: max(
            n * sum(search.available > 0 for search in each.get(name, ())) for each in used.values()
        )
        for name in algorithms
    }
    each_n = ", ".join(f"{name or 'none'} (N = {trials[name]})" for name in algorithms)
    lacking = [size for size, each in used.items() if len(each) < len(algorithms)]
    return [
        Note("minimized", names=" and ".join(over), each=each_n),
        *note_at("fewer_algorithms", lacking),
    ]


def _point_notes(points: Sequence[Point]) -> list[Note]:
    """Notes on points that differ in kind from the others."""
    without = [point.batch_size for point in points if point.ran and not point.trials]
    larger = {point.batch_size: point.enlarged for point in points if point.enlarged}
    more = min(larger.values(), default=0), max(larger.values(), default=0)
    hit = [point for point in points if point.minimum is not None]
    rare = [point.batch_size for point in hit if point.censored and not point.replicates]
    return [
        *note_at("infeasible", without),
        *note_at("enlarged", [*larger], n=more),
        *note_at("maybe_lower", [point.batch_size for point in hit if not point.exact]),
        *note_at("rare", rare),
    ]
