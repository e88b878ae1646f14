"""Shallue et al. 2019, figure 10: learning rate and momentum of every trial, and whether it reached
the target, across model sizes."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from analysis.figure_data import FigureData
from analysis.figures.paper import scatter
from analysis.figures.paper.compared import grouped, line_labels, plain_by
from analysis.figures.paper.panel import once
from analysis.figures.shallue import fig3
from results.errors import ResultsError


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A row of panels a model, at batch sizes that the models share; within ``--under``, if it is
    given."""
    return scatter.draw(_rows(shown), ax)


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a trial of each panel."""
    return scatter.numbers(_rows(shown))


@once
def _rows(shown: FigureData) -> list[scatter.Row]:
    named = shown.query.by or ()
    shown = plain_by(shown)
    pairs = [(curve, None) for curve in scatter.searched(shown.trials_of_curves)]
    rows: list[scatter.Row] = []
    seen: set[int] = set()
    for varying in fig3.varying(shown, named):
        for _, some in grouped(pairs, varying, 2):
            curves = [curve for curve, _ in some]
            if {id(curve) for curve in curves} <= seen:
                continue
            seen |= {id(curve) for curve in curves}
            sizes = scatter.chosen(curves)
            texts = line_labels(curves, varying.columns)
            rows += [
                scatter.Row(curve=curve, text=text, sizes=sizes)
                for curve, text in zip(curves, texts, strict=True)
            ]
    if not any(row.sizes for row in rows):
        raise ResultsError(
            "no two models with a momentum, at a batch size that they share",
            hint="this figure needs searches of momentum for models of several sizes: "
            "a field of the workload such as width",
        )
    return rows
