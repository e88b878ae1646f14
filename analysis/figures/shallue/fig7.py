"""Shallue et al. 2019, figure 7: label smoothing, by the best metric and by steps to target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.curves.best_metric import BestCurve, best_metrics
from analysis.curves.curve import Curve
from analysis.curves.groups import widen
from analysis.curves.limits import Limit
from analysis.figure_data import FigureData
from analysis.figures.paper.compared import ALGORITHM, is_smoothing, key_of, titles
from analysis.figures.paper.lines import best_panel, has_values, line_of, panel_of, unknown_points
from analysis.figures.paper.panel_figure import figure
from analysis.figures.paper.panels import Panel, PanelFigure
from analysis.fit.regimes import Regimes
from results.errors import ResultsError

_COLUMNS = ("label_smoothing", "fields.label_smoothing", "technique.label_smoothing")


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The curves of one workload and training algorithm, one a value."""

    key: dict[str, Any]
    steps: list[tuple[float, Curve, Regimes | None]]
    best: list[tuple[float, BestCurve]]


def _content(data: FigureData) -> PanelFigure:
    """A row of panels a workload and training algorithm: the best metric within the budget (or
    ``--under`` another) where there are measurements, then steps to target; a line a value.

    The value is a metaparameter's, a field's of the workload, or a key's of the technique. Where it
    was tuned, each line is the best of the trials that have it.
    """
    parts = _parts(data)
    footnote = unknown_points([curve for part in parts for _, curve in part.best])
    return PanelFigure(panels=_panels(parts), footnote=footnote)


def _column(trials: pd.DataFrame) -> str:
    """The column of label smoothing that varies.

    Raises:
        ResultsError: none does.
    """
    frame = widen(trials).frame
    for name in _COLUMNS:
        if name in frame and frame[name].dropna().astype(float).nunique() > 1:
            return name
    raise ResultsError(
        "no two values of label smoothing to compare",
        hint="this figure needs trials that differ in label_smoothing, tuned or a field",
    )


def _parts(data: FigureData) -> list[_Part]:
    name = _column(data.trials)
    by = data.query.by or ALGORITHM & {n for n in data.trials if data.trials[n].notna().any()}
    varied = data.each_by([*(n for n in sorted(by) if n != name), name])
    limits: Sequence[Limit | None] = data.query.under or [None]
    best = best_metrics(varied.trials, varied.evaluations, limits, by=varied.query.by)
    parts: dict[tuple[Any, ...], _Part] = {}

    def part(group: Any) -> _Part:
        key = {n: v for n, v in key_of(group).items() if n != name and not is_smoothing(n)}
        return parts.setdefault(tuple(key.items()), _Part(key=key, steps=[], best=[]))

    for curve, fit in varied.pairs:
        value = curve.group.get(name)
        if value is not None:
            part(curve.group).steps.append((float(value), curve, fit))
    for best_curve in best:
        value = best_curve.group.get(name)
        if value is not None:
            part(best_curve.group).best.append((float(value), best_curve))
    return [part for part in parts.values() if len({value for value, *_ in part.steps}) > 1]


def _panels(parts: Sequence[_Part]) -> list[Panel]:
    panels: list[Panel] = []
    names = titles([part.key for part in parts])
    for row, (name, part) in enumerate(zip(names, parts, strict=True)):
        for limit in dict.fromkeys(curve.limit for _, curve in part.best):
            best = [(v, c) for v, c in part.best if c.limit == limit and has_values([c])]
            if best:
                lines_of_best = [(_label(v), c) for v, c in sorted(best, key=lambda pair: pair[0])]
                note = f"under {limit}" if limit else "within the budget"
                panels.append(best_panel(name, lines_of_best, note=note, row=row))
        steps = sorted(part.steps, key=lambda triple: triple[0])
        lines = [line_of(curve, fit, _label(v)) for v, curve, fit in steps]
        curves = [curve for _, curve, _ in steps]
        panels.append(panel_of(name, curves, lines, "steps to target", row=row))
    return panels


def _label(value: float) -> str:
    return f"label smoothing {value:g}"


draw, numbers = figure(_content)
