"""Shallue et al. 2019, figure 9: learning rate and momentum of every trial, under two budgets."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from analysis.curves.groups import labels
from analysis.figure_data import FigureData
from analysis.figures.drawing.page import Page
from analysis.figures.paper import budgets
from analysis.figures.search import (
    Row,
    draw_rows,
    row_of,
    shared_sizes,
    tabulate_rows,
    with_momentum,
)


def draw(data: FigureData, *, page: Page) -> Axes:
    """A row of panels a curve and budget: those of ``--under``, else one of epochs (of examples
    where the training set's size is not recorded) and one of steps, alike at the middle batch
    size."""
    return draw_rows(data.computed(_rows), page)


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a trial of each panel."""
    return tabulate_rows(data.computed(_rows))


def _rows(data: FigureData) -> list[Row]:
    curves = with_momentum(data.under().trials_of_curves)
    rows = []
    names = labels([curve.group for curve in curves], [str(curve.target) for curve in curves])
    for curve, name in zip(curves, names, strict=True):
        for limit in data.query.under or budgets.pair(data.trials, curve):
            under = next(c for c in data.under(limit).trials_of_curves if c.label == curve.label)
            text = f"{name}, {limit}" if len(curves) > 1 and name else str(limit)
            rows.append(row_of(under, text, shared_sizes([curve])))
    return rows
