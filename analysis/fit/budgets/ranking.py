"""Which curve is best at which batch size, by final losses at one budget.

Two curves are told apart at a batch size by a test at ``ALPHA`` for all pairs of curves and all
batch sizes of the budget together (Bonferroni; ``loss_crossovers`` has the test). A least loss over
K learning rates may win by the luck of any of them, and counts as K comparisons: where a curve is
called better than another and is not, one of its K means is too far below that of the other's best
configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from analysis.curves.final_losses import FinalLosses, same_budgets
from analysis.fit.budgets.loss_crossovers import (
    LEVEL,
    OWN,
    LossCrossover,
    Noise,
    Place,
    loss_crossover,
    p_value,
)
from analysis.fit.interval import Interval
from analysis.fit.optimal_batch import optimal_batch
from analysis.formatting import units
from analysis.notes import Note, codes, note_at

ALPHA = 0.05
"""How often any claim of a ranking that one curve is better than another may be wrong."""

Row = tuple[Place, ...]


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The curves of one workload and metric at one budget."""

    group: Mapping[str, Any]
    """The workload and the data set."""
    metric: str
    lower_is_better: bool
    unit: str
    """What batch sizes and the budget are counted in: ``tokens``, ``images``."""
    budget: float
    curves: tuple[str, ...]
    rows: tuple[Row, ...]
    """Of each batch size, ascending, the curves that were run there, the best first."""
    crossovers: tuple[LossCrossover, ...]
    """Of each pair of curves with two batch sizes in common."""
    best_batch_sizes: Mapping[str, tuple[int, Interval]]
    """Of each curve the tested batch size of the best mean, and the interval of the optimum
    (``analysis.fit.optimal_batch``)."""
    comparisons: int
    """For how many comparisons p-values are corrected."""
    notes: tuple[Note, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As ``batchscale.best_at_batch`` returns it."""
        return {
            **self.group,
            "metric": self.metric,
            "lower_is_better": self.lower_is_better,
            "unit": self.unit,
            "budget": self.budget,
            "batch_sizes": [
                {
                    "batch_size": row[0].batch_size,
                    "best": row[0].curve if row[0].compared else None,
                    "significant": significant(row),
                    "curves": [place.to_dict() for place in row],
                }
                for row in self.rows
            ],
            "crossovers": [each.to_dict() for each in self.crossovers],
            "best_batch_sizes": {
                curve: {"best_tested": best, **interval.to_dict()}
                for curve, (best, interval) in self.best_batch_sizes.items()
            },
            "level": LEVEL,
            "alpha": ALPHA,
            "comparisons": self.comparisons,
            "notes": list(self.notes),
            "note_codes": codes(self.notes),
        }


def significant(row: Row) -> bool | None:
    """Whether the best is told to be better than all others that are compared with it; None where
    the noise is unknown, or there is no other."""
    others = [place.p for place in row[1:] if place.compared]
    if not others or None in others:
        return None
    return all(p is not None and p <= ALPHA for p in others)


def rankings(finals: Sequence[FinalLosses]) -> list[Ranking]:
    """A ranking of each workload, metric and unit at each budget, by ascending budget.

    Budgets that differ by rounding are one, as in ``final_losses``.
    """
    questions: dict[tuple[Any, ...], list[FinalLosses]] = {}
    for final in finals:
        group = final.group.get("workload"), final.group.get("dataset")
        key = (*group, final.metric, final.lower_is_better, final.example_unit)
        questions.setdefault(key, []).append(final)
    made = []
    for alike in questions.values():
        each = np.unique([budget for final in alike for budget in final.budgets])
        same = same_budgets(each)
        made += [
            _ranking(alike, {*each[same == budget]}, float(budget)) for budget in np.unique(same)
        ]
        if len(made) == 1 and len(questions) == 1:
            made = [replace(made[0], notes=(Note("single_budget"), *made[0].notes))]
    return made


def _ranking(finals: Sequence[FinalLosses], budgets: set[float], budget: float) -> Ranking:
    curves = {final.label: _places(final, budgets) for final in finals}
    curves = {label: places for label, places in curves.items() if places}
    everything = [place for places in curves.values() for place in places]
    noise = Noise.of(place.runs for place in everything if place.runs)
    single = []
    for label, places in curves.items():
        own = Noise.of(place.runs for place in places if place.runs)
        single += [] if own.freedom else [label]
        curves[label] = [_with_noise(place, own if own.freedom else noise) for place in places]
    sizes = sorted({place.batch_size for place in everything})
    rows = [
        [place for places in curves.values() for place in places if place.batch_size == size]
        for size in sizes
    ]
    # One-sided tests: each configuration of the better curve may be the one that was lucky.
    tests = sum(
        a.configurations + b.configurations
        for row in rows
        for a, b in combinations([place for place in row if place.compared], 2)
    )
    sign = 1.0 if finals[0].lower_is_better else -1.0
    pairs = [
        loss_crossover(first, second, sign=sign, least=ALPHA / max(tests, 1))
        for first, second in combinations(curves.values(), 2)
    ]
    present = [final for final in finals if final.label in curves]
    return Ranking(
        group={name: finals[0].group.get(name) for name in ("workload", "dataset")},
        metric=finals[0].metric,
        lower_is_better=finals[0].lower_is_better,
        unit=units(final.example_unit for final in finals),
        budget=budget,
        curves=tuple(curves),
        rows=tuple(_ranked(row, sign, tests) for row in rows),
        crossovers=tuple(each for each in pairs if each is not None),
        best_batch_sizes={
            final.label: best
            for final in present
            if (best := _best(final, curves[final.label], budgets)) is not None
        },
        comparisons=-(-tests // 2),
        notes=(
            *_notes(curves, sizes, single, noise),
            *dict.fromkeys(note for final in present for note in final.notes),
        ),
    )


def _places(final: FinalLosses, budgets: set[float]) -> list[Place]:
    """The places of a curve at a budget, by ascending batch size."""
    failed = {size: n for (size, budget), n in final.failed.items() if budget in budgets}
    points = {point.batch_size: point for point in final.points if point.budget in budgets}
    return [
        Place(
            curve=final.label,
            batch_size=size,
            runs=(points[size].runs or (points[size].value,)) if size in points else (),
            failed=failed.get(size, 0),
            configurations=points[size].configurations if size in points else 1,
            learning_rate=points[size].learning_rate if size in points else None,
        )
        for size in sorted({*points, *failed})
    ]


def _with_noise(place: Place, noise: Noise) -> Place:
    own = Noise.of([place.runs]) if len(place.runs) >= OWN else Noise()
    return replace(place, noise=own if own.freedom else noise)


def _ranked(row: Sequence[Place], sign: float, tests: int) -> Row:
    """The places at a batch size, the best first, and those with failed runs last."""
    order = sorted(row, key=lambda place: (not place.compared, sign * (place.mean or 0.0)))
    best, *others = order
    if not best.compared:
        return tuple(order)
    p_values = [p_value(best, place) if place.compared else np.nan for place in others]
    return (
        best,
        *(
            replace(place, p=None if np.isnan(p) else min(1.0, p * tests))
            for place, p in zip(others, p_values, strict=True)
        ),
    )


def _best(
    final: FinalLosses, places: Sequence[Place], budgets: set[float]
) -> tuple[int, Interval] | None:
    """The tested batch size of the best mean, and the optimum's interval: by the parabola, or a
    bound by the scatter of the runs where the best is the smallest or the largest one."""
    tested = [place for place in places if place.compared]
    if not tested:
        return None
    best = min(tested, key=lambda place: final.cost(place.mean or 0.0))
    optima = optimal_batch(final).optima
    optimum = next((o.batch_size for o in optima if o.budget in budgets), Interval())
    worse = [
        place.batch_size
        for place in tested
        if place is not best and p_value(best, place) <= (1 - LEVEL) / 2
    ]
    smallest = best is tested[0]
    if optimum.is_open and worse and (smallest or best is tested[-1]):
        end = min(worse) if smallest else max(worse)
        sizes = [place.batch_size for place in tested]
        optimum = Interval.at_edge(end, sizes, smallest=smallest)
    return best.batch_size, optimum


def _notes(
    curves: Mapping[str, Sequence[Place]], sizes: Sequence[int], single: Sequence[str], noise: Noise
) -> list[Note]:
    notes = []
    everything = [place for places in curves.values() for place in places]
    if len(curves) == 1:
        notes.append(Note("one_curve", curve=next(iter(curves))))
    elif not noise.freedom:
        repeated = any(len(place.runs) > 1 for place in everything)
        notes.append(Note("equal_runs" if repeated else "single_runs"))
    elif single:
        notes.append(Note("noise_of_others", curves=", ".join(single)))
    most = max((place.configurations for place in everything), default=1)
    if most > 1 and noise.freedom:
        notes.append(Note("selected", n=most))
    for label, places in curves.items():
        absent = sorted({*sizes} - {place.batch_size for place in places})
        lost = [place.batch_size for place in places if place.failed]
        notes += note_at("not_run_there", absent, curve=label)
        notes += note_at("failed_runs", lost, curve=label)
    return notes
