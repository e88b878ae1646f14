"""Shallue et al. 2019, figure 2: steps to several goals of each workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.figure_data import FigureData
from analysis.figures.drawing.facets import Pairs
from analysis.figures.paper.compared import key_of, titles
from analysis.figures.paper.lines import goal as goal_text
from analysis.figures.paper.lines import line_of, panel_of, published_lines
from analysis.figures.paper.panel_figure import figure
from analysis.figures.paper.panels import Panel, PanelFigure
from results.counts import count
from results.errors import ResultsError


def _content(data: FigureData) -> PanelFigure:
    """A panel a workload and training algorithm, a line a goal, easiest first; goals that steps
    cannot be computed to are left out."""
    groups: dict[tuple[Any, ...], Pairs] = {}
    left_out: list[dict[str, str]] = []
    for experiment, workload, part in _parts(data):
        for goal in part.goals:
            at_goal = part.at(goal)
            try:
                pairs = at_goal.pairs
            except ResultsError as error:
                left_out.append({"panel": workload, "target": str(goal), "note": str(error)})
                continue
            for curve, fit in pairs:
                if curve.target == goal:
                    key = (("experiment", experiment), *curve.group.items())
                    groups.setdefault(key, []).append((curve, fit))
    groups = {key: pairs for key, pairs in groups.items() if _goal_count(pairs) > 1}
    if not groups:
        first = left_out[0] if left_out else None
        why = f"; {first['target']}: {first['note']}" if first else ""
        raise ResultsError(
            f"no workload with steps to several goals{why}",
            hint="this figure needs experiments with a list of targets, best with "
            "stop_at_target: false",
        )
    names = titles([key_of(dict(key)) for key in groups])
    panels = [_panel(name, pairs, data) for name, pairs in zip(names, groups.values(), strict=True)]
    goals = count(len(left_out), "goal", "are")
    footnote = f"{goals} left out: trials were stopped before (the CSV has the reasons)"
    return PanelFigure(panels=panels, left_out=left_out, footnote=footnote if left_out else "")


def _parts(data: FigureData) -> Iterator[tuple[str | None, str, FigureData]]:
    """Each workload of each experiment: their goals are their own."""
    columns = ["experiment", "workload"]
    for row in data.trials[columns].drop_duplicates().itertuples(index=False):
        values = {n: v for n, v in zip(columns, row, strict=True) if isinstance(v, str)}
        texts = {name: value.replace("'", "''") for name, value in values.items()}
        condition = " AND ".join(f"{name} = '{text}'" for name, text in texts.items())
        part = data.only(condition) if condition else data
        yield values.get("experiment"), values.get("workload", ""), part


def _goal_count(pairs: Pairs) -> int:
    """Goals that are reached at some batch size."""
    return len({str(c.target) for c, _ in pairs if any(not p.censored for p in c.points)})


def _panel(title: str, pairs: Pairs, data: FigureData) -> Panel:
    metrics = {curve.target.metric for curve, _ in pairs if curve.target is not None}
    note = metrics.pop() if len(metrics) == 1 else ""
    names = [goal_text(curve) if note else str(curve.target) for curve, _ in pairs]
    curves = [curve for curve, _ in pairs]
    lines = [
        *(line_of(curve, fit, name) for (curve, fit), name in zip(pairs, names, strict=True)),
        *published_lines(list(zip(names, curves, strict=True)), data.published, goals=True),
    ]
    return panel_of(title, curves, lines, "steps to goal", note=note)


draw, numbers = figure(_content)
