"""Shallue et al. 2019, figure 11: best metric against batch size under step and epoch budgets."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.curves.best_metric import BestCurve, best_metrics
from analysis.curves.limits import Limit
from analysis.figure_data import FigureData
from analysis.figures.paper.budgets import series
from analysis.figures.paper.compared import key_of, titles
from analysis.figures.paper.lines import best_panel, has_values, main_reason, unknown_points
from analysis.figures.paper.panel_figure import figure
from analysis.figures.paper.panels import Panel, PanelFigure
from results.errors import ResultsError

_HINT = "this figure needs measurements of trials that go past their target: stop_at_target: false"


def _content(data: FigureData) -> PanelFigure:
    """A panel a workload, training algorithm and unit of budget, a line a budget.

    Budgets are those of ``--under``, else four of steps and four of epochs (of examples where the
    training set's size is not recorded) that every batch size was trained for.
    """
    groups = _groups(data)
    footnote = unknown_points([curve for group in groups for curve in group])
    return PanelFigure(panels=_panels(groups), footnote=footnote)


def _groups(data: FigureData) -> list[list[BestCurve]]:
    """The curves of each panel: of one curve and unit of budget."""
    limits: Sequence[Limit] = data.query.under or series(data.trials)
    curves = best_metrics(data.trials, data.evaluations, limits, by=data.query.by)
    if not has_values(curves):
        under = f" under {' or '.join(map(str, limits))}" if limits else ""
        raise ResultsError(f"no best metric{under} is known: {main_reason(curves)}", hint=_HINT)
    groups = []
    for start in range(0, len(curves), len(limits)):
        row = curves[start : start + len(limits)]
        if has_values(row):
            units = dict.fromkeys(limit.unit for limit in limits)
            groups += [[c for c in row if c.limit and c.limit.unit == unit] for unit in units]
    return groups


def _panels(groups: Sequence[Sequence[BestCurve]]) -> list[Panel]:
    rows: dict[str, int] = {}
    panels = []
    names = titles([key_of(group[0].group) for group in groups])
    for name, group in zip(names, groups, strict=True):
        row = rows.setdefault(f"{name} {group[0].label}", len(rows))
        assert group[0].limit is not None
        note = f"under {group[0].limit.unit}, N = {group[0].trials}"
        curves = [(str(curve.limit), curve) for curve in group]
        panels.append(best_panel(name, curves, note=note, row=row))
    return panels


draw, numbers = figure(_content)
