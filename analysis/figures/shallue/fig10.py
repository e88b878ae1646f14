"""Shallue et al. 2019, figure 10: learning rate and momentum of every trial, across model sizes."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from analysis.figure_data import FigureData
from analysis.figures.drawing.facets import Pair
from analysis.figures.drawing.page import Page
from analysis.figures.paper.compared import grouped, line_labels, without_needless_by
from analysis.figures.search import (
    Row,
    draw_rows,
    row_of,
    shared_sizes,
    tabulate_rows,
    with_momentum,
)
from analysis.figures.shallue import fig3
from results.errors import ResultsError


def draw(data: FigureData, *, page: Page) -> Axes:
    """A row of panels a model, at batch sizes that the models share; within ``--under``, if it is
    given."""
    return draw_rows(data.computed(_rows), page)


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a trial of each panel."""
    return tabulate_rows(data.computed(_rows))


def _rows(data: FigureData) -> list[Row]:
    named = data.query.by or ()
    data = without_needless_by(data)
    pairs: list[Pair] = [(curve, None) for curve in with_momentum(data.trials_of_curves)]
    rows: list[Row] = []
    drawn: set[int] = set()
    for varying in fig3.varying(data, named):
        for _, group in grouped(pairs, varying, 2):
            curves = [curve for curve, _ in group]
            if {id(curve) for curve in curves} <= drawn:
                continue
            drawn |= {id(curve) for curve in curves}
            sizes = shared_sizes(curves)
            names = line_labels(curves, varying.columns)
            rows += [row_of(*each, sizes) for each in zip(curves, names, strict=True)]
    if not any(points for _, _, points in rows):
        raise ResultsError(
            "no two models with a momentum, at a batch size that they share",
            hint="this figure needs searches of momentum for models of several sizes: "
            "a field of the workload such as width",
        )
    return rows
