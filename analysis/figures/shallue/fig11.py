"""Shallue et al. 2019, figure 11: best metric against batch size under budgets of steps and of
epochs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes

from analysis.curves.best_metric import BestCurve, best_metrics
from analysis.curves.limits import Limit
from analysis.figure_data import FigureData
from analysis.figures.paper import best, sheet
from analysis.figures.paper.budgets import series
from analysis.figures.paper.compared import titles
from analysis.figures.paper.panel import Panel, once, tabulate
from analysis.formatting import units
from results.errors import ResultsError

_HINT = "this figure needs measurements of trials that go past their target: stop_at_target: false"


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A panel a workload, training algorithm and unit of budget, a line a budget.

    Budgets are those of ``--under``, else four of steps and four of epochs (of examples where the
    training set's size is not recorded) that every batch size was trained for.
    """
    found = _found(shown)
    return sheet.draw(_panels(found), ax, best.foot([one for some in found for one in some]))


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a point; one that is not known says for how many trials, and why."""
    return tabulate(_panels(_found(shown)))


@once
def _found(shown: FigureData) -> list[list[BestCurve]]:
    """By curve and unit, in a row of panels each curve."""
    limits: Sequence[Limit] = shown.query.under or series(shown.trials)
    every = best_metrics(shown.trials, shown.evaluations, limits, by=shown.query.by)
    if not best.known(every):
        under = f" under {' or '.join(map(str, limits))}" if limits else ""
        raise ResultsError(f"no best metric{under} is known: {best.why_not(every)}", hint=_HINT)
    parts: dict[tuple[int, str], list[BestCurve]] = {}
    for i, curve in enumerate(every):
        assert curve.limit is not None
        parts.setdefault((i // len(limits), curve.limit.unit), []).append(curve)
    seen = {row for (row, _), some in parts.items() if best.known(some)}
    return [some for (row, _), some in parts.items() if row in seen]


def _panels(found: Sequence[Sequence[BestCurve]]) -> list[Panel]:
    keys = [
        {n: v for n, v in some[0].group.items() if v is not None and n != "source"}
        for some in found
    ]
    rows: dict[str, int] = {}
    panels = []
    for text, some in zip(titles([("", key) for key in keys]), found, strict=True):
        row = rows.setdefault(f"{text} {some[0].label}", len(rows))
        assert some[0].limit is not None
        panels.append(
            Panel(
                title=text,
                lines=tuple(best.line_of(one, str(one.limit)) for one in some),
                measure=best.measure(some[0]),
                note=f"under {some[0].limit.unit}, N = {some[0].trials}",
                unit=units(one.example_unit for one in some),
                counted=False,
                wide=row,
            )
        )
    return panels
