"""Shallue et al. 2019, figure 8: best effective learning rate against batch size, and two rules."""

from __future__ import annotations

from matplotlib.axes import Axes

from analysis.figure_data import FigureData
from analysis.figures import learning_rate
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.panel_figure import draw_panels
from analysis.figures.drawing.panels import Dot, Line, Pair, Panel, Rule
from analysis.figures.learning_rate import RULES, measure, rate_edges, with_rates
from analysis.figures.paper.compared import key_of, titles
from analysis.figures.paper.lines import panel_of
from analysis.fit.reference_lines import level

numbers = learning_rate.numbers


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
    """A panel a curve; bars reach over the up to four best trials, rules are those of the figure
    ``learning_rate``."""
    pairs = with_rates(data)
    names = titles([key_of(curve.group) for curve, _ in pairs])
    panels = [_panel(name, pair) for name, pair in zip(names, pairs, strict=True)]
    return draw_panels(panels, page=page or Page(), ax=ax)


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
    return panel_of(title, [curve], [line], measure(curve), rules=rules)
