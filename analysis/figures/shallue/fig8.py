"""Shallue et al. 2019, figure 8: best effective learning rate against batch size, with the linear
and the square-root rule."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from analysis.figure_data import FigureData
from analysis.figures import learning_rate
from analysis.figures.learning_rate import RULES, measure
from analysis.figures.paper import sheet
from analysis.figures.paper.compared import titles
from analysis.figures.paper.panel import Dot, Line, Panel, Rule
from analysis.fit.reference_lines import level
from analysis.formatting import units
from results.errors import ResultsError


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A panel a curve; bars reach over the up to four best trials, rules are those of the figure
    ``learning_rate``."""
    return sheet.draw(_panels(shown), ax)


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a batch size: those of the figure ``learning_rate``."""
    return learning_rate.numbers(shown)


def _panels(shown: FigureData) -> list[Panel]:
    rated = [
        (curve, found)
        for curve, found in zip(shown.curves, shown.regimes, strict=True)
        if any(point.rates for point in curve.points)
    ]
    if not rated:
        raise ResultsError(
            "no learning rates to draw", hint="this figure needs trials of a search, not steps"
        )
    keys = [{n: v for n, v in c.group.items() if v is not None and n != "source"} for c, _ in rated]
    panels = []
    for text, (curve, found) in zip(titles([("", key) for key in keys]), rated, strict=True):
        dots = tuple(
            Dot(
                batch_size=point.batch_size,
                value=point.rates[0] if point.rates else None,
                bar=(min(point.rates), max(point.rates)) if point.rates else None,
                edges=tuple(e for e in point.edges if e.dimension == "learning_rate"),
            )
            for point in curve.points
        )
        rules = tuple(
            Rule(name=name, level=level(curve, found, power), power=power, dashes=dashes)
            for name, power, dashes in RULES
        )
        panels.append(
            Panel(
                title=text,
                lines=(Line(label=curve.label, dots=dots),),
                measure=measure(curve),
                note=str(curve.target or ""),
                unit=units([curve.example_unit]),
                rules=rules,
            )
        )
    return panels
