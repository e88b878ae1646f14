"""Shallue et al. 2019, figure 8: best effective learning rate against batch size, and two rules."""

from __future__ import annotations

from analysis.figure_data import FigureData
from analysis.figures import learning_rate
from analysis.figures.drawing.facets import Pair
from analysis.figures.learning_rate import RULES, measure, rate_edges, with_rates
from analysis.figures.paper.compared import key_of, titles
from analysis.figures.paper.lines import panel_of
from analysis.figures.paper.panel_figure import figure
from analysis.figures.paper.panels import Dot, Line, Panel, PanelFigure, Rule
from analysis.fit.reference_lines import level


def _content(data: FigureData) -> PanelFigure:
    """A panel a curve; bars reach over the up to four best trials, rules are those of the figure
    ``learning_rate``."""
    pairs = with_rates(data)
    names = titles([key_of(curve.group) for curve, _ in pairs])
    return PanelFigure(panels=[_panel(name, pair) for name, pair in zip(names, pairs, strict=True)])


def _panel(title: str, pair: Pair) -> Panel:
    curve, fit = pair
    dots = tuple(
        Dot(
            batch_size=point.batch_size,
            value=point.rates[0] if point.rates else None,
            bar=(min(point.rates), max(point.rates)) if point.rates else None,
            edges=tuple(rate_edges(point)),
        )
        for point in curve.points
    )
    rules = tuple(
        Rule(name=name, level=level(curve, fit, power), power=power, dashes=dashes)
        for name, power, dashes in RULES
    )
    line = Line(label=curve.label, dots=dots)
    return panel_of(title, [curve], [line], measure(curve), rules=rules, decimal=True)


draw, _ = figure(_content)
numbers = learning_rate.numbers
