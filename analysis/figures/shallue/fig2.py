"""Shallue et al. 2019, figure 2: steps to several goals of each workload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.figures.paper import sheet
from analysis.figures.paper.compared import titles
from analysis.figures.paper.lines import beside, line_of
from analysis.figures.paper.panel import Panel, once, tabulate
from analysis.fit.regimes import Regimes
from analysis.formatting import units
from results.counts import count
from results.errors import ResultsError
from results.targets.target import Target

Pair = tuple[Curve, Regimes | None]


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A goal that steps cannot be computed to."""

    workload: str
    goal: Target
    reason: str


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A panel a workload and training algorithm, a line a goal, easiest first."""
    panels, lost = _panels(shown)
    foot = ""
    if lost:
        several = count(len(lost), "goal", "are")
        foot = f"{several} left out: trials were stopped before (the CSV has the reasons)"
    return sheet.draw(panels, ax, foot)


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a point; a goal that is left out has a row with the reason as its note."""
    panels, lost = _panels(shown)
    return tabulate(
        panels,
        [{"panel": one.workload, "target": str(one.goal), "note": one.reason} for one in lost],
    )


@once
def _panels(shown: FigureData) -> tuple[list[Panel], list[LeftOut]]:
    groups: dict[tuple[Any, ...], list[Pair]] = {}
    lost: list[LeftOut] = []
    for experiment, workload, part in _parts(shown):
        for goal in part.goals:
            at = part.at(goal)
            try:
                pairs = list(zip(at.curves, at.regimes, strict=True))
            except ResultsError as error:
                lost.append(LeftOut(workload=workload, goal=goal, reason=str(error)))
                continue
            for curve, found in pairs:
                if curve.target == goal:
                    key = (("experiment", experiment), *curve.group.items())
                    groups.setdefault(key, []).append((curve, found))
    kept = {key: some for key, some in groups.items() if _goals(some) > 1}
    if not kept:
        why = f"; {lost[0].goal}: {lost[0].reason}" if lost else ""
        raise ResultsError(
            f"no workload with steps to several goals{why}",
            hint="this figure needs experiments with a list of targets, best with "
            "stop_at_target: false",
        )
    keys = [{n: v for n, v in key if v is not None and n != "source"} for key in kept]
    texts = titles([("", key) for key in keys])
    parts = zip(texts, kept.values(), strict=True)
    return [_panel(text, some, shown) for text, some in parts], lost


def _parts(shown: FigureData) -> Iterator[tuple[str | None, str, FigureData]]:
    """Each workload of each experiment: their goals are their own."""
    columns = ["experiment", "workload"]
    for row in shown.trials[columns].drop_duplicates().itertuples(index=False):
        named = {
            name: value for name, value in zip(columns, row, strict=True) if isinstance(value, str)
        }
        condition = " AND ".join(f"{name} = '{_quoted(value)}'" for name, value in named.items())
        part = shown.only(condition) if condition else shown
        yield named.get("experiment"), named.get("workload", ""), part


def _quoted(text: str) -> str:
    return text.replace("'", "''")


def _goals(pairs: list[Pair]) -> int:
    """Goals that are reached at some batch size."""
    return len({str(c.target) for c, _ in pairs if any(not p.censored for p in c.points)})


def _panel(title: str, pairs: list[Pair], shown: FigureData) -> Panel:
    metrics = {curve.target.metric for curve, _ in pairs if curve.target is not None}
    goals = [_words(curve, metrics) for curve, _ in pairs]
    lines = [line_of(curve, found, text) for (curve, found), text in zip(pairs, goals, strict=True)]
    given = [(curve, text) for (curve, _), text in zip(pairs, goals, strict=True)]
    lines += beside(given, shown.published, goals=True)
    return Panel(
        title=title,
        lines=tuple(lines),
        measure="steps to goal",
        note=metrics.pop() if len(metrics) == 1 else "",
        unit=units(curve.example_unit for curve, _ in pairs),
    )


def _words(curve: Curve, metrics: set[str]) -> str:
    text = str(curve.target)
    return text.partition(" ")[2] if len(metrics) == 1 else text
