"""Shallue et al. 2019, figure 7: label smoothing, by the best metric and by steps to target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from analysis.curves.best_metric import BestCurve, best_metrics
from analysis.curves.curve import Curve
from analysis.curves.groups import widen
from analysis.curves.limits import Limit
from analysis.figure_data import FigureData
from analysis.figures.paper import best, sheet
from analysis.figures.paper.compared import ALGORITHM, titles
from analysis.figures.paper.lines import line_of
from analysis.figures.paper.panel import Panel, once, tabulate
from analysis.figures.paper.subsets import is_smoothing
from analysis.fit.regimes import Regimes
from analysis.formatting import units
from results.errors import ResultsError

_COLUMNS = ("label_smoothing", "fields.label_smoothing", "technique.label_smoothing")


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The curves of one workload and training algorithm, one a value."""

    key: dict[str, Any]
    steps: list[tuple[float, Curve, Regimes | None]]
    best: list[tuple[float, BestCurve]]


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A row of panels a workload and training algorithm: the best metric within the budget (or
    ``--under`` another) where measurements tell, then steps to target; a line a value.

    The value is a metaparameter's, a field's of the workload, or a key's of the technique. Where it
    was tuned, each line is the best of the trials that have it.
    """
    parts = _parts(shown)
    return sheet.draw(_panels(parts), ax, best.foot([c for part in parts for _, c in part.best]))


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a point of each panel."""
    return tabulate(_panels(_parts(shown)))


def column(trials: pd.DataFrame) -> str:
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


@once
def _parts(shown: FigureData) -> list[_Part]:
    name = column(shown.trials)
    by = shown.query.by or ALGORITHM & {n for n in shown.trials if shown.trials[n].notna().any()}
    varied = shown.each_by([*(n for n in sorted(by) if n != name), name])
    parts: dict[tuple[Any, ...], _Part] = {}
    for curve, found in zip(varied.curves, varied.regimes, strict=True):
        value = curve.group.get(name)
        if value is not None:
            _part(parts, curve.group, name).steps.append((float(value), curve, found))
    limits: Sequence[Limit | None] = shown.query.under or [None]
    for one in best_metrics(varied.trials, varied.evaluations, limits, by=varied.query.by):
        value = one.group.get(name)
        if value is not None:
            _part(parts, one.group, name).best.append((float(value), one))
    return [part for part in parts.values() if len({value for value, *_ in part.steps}) > 1]


def _part(parts: dict[tuple[Any, ...], _Part], group: Any, name: str) -> _Part:
    key = {n: v for n, v in group.items() if n not in (name, "source") and v is not None}
    key = {n: v for n, v in key.items() if not is_smoothing(n)}
    return parts.setdefault(tuple(key.items()), _Part(key=key, steps=[], best=[]))


def _panels(parts: Sequence[_Part]) -> list[Panel]:
    panels: list[Panel] = []
    texts = titles([("", part.key) for part in parts])
    for row, (text, part) in enumerate(zip(texts, parts, strict=True)):
        limits = dict.fromkeys(one.limit for _, one in part.best)
        for limit in limits:
            some = [(v, one) for v, one in part.best if one.limit == limit and _seen(one)]
            some.sort(key=lambda pair: pair[0])
            if some:
                first = some[0][1]
                panels.append(
                    Panel(
                        title=text,
                        lines=tuple(best.line_of(one, _words(v)) for v, one in some),
                        measure=best.measure(first),
                        note=f"under {limit}" if limit else "within the budget",
                        unit=units([first.example_unit]),
                        counted=False,
                        wide=row,
                    )
                )
        ordered = sorted(part.steps, key=lambda one: one[0])
        panels.append(
            Panel(
                title=text,
                lines=tuple(line_of(c, found, _words(v)) for v, c, found in ordered),
                measure="steps to target",
                note=str(ordered[0][1].target or ""),
                unit=units(curve.example_unit for _, curve, _ in ordered),
                wide=row,
            )
        )
    return panels


def _seen(one: BestCurve) -> bool:
    return any(point.value is not None for point in one.points)


def _words(value: float) -> str:
    return f"label smoothing {value:g}"
