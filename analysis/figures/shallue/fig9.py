"""Shallue et al. 2019, figure 9: learning rate and momentum of every trial, and whether it reached
the target, under a budget of epochs and one of steps."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from analysis.curves.groups import labels
from analysis.figure_data import FigureData
from analysis.figures.paper import scatter
from analysis.figures.paper.budgets import two
from analysis.figures.paper.panel import once


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A row of panels a curve and budget: those of ``--under``, else one of epochs (of examples
    where the training set's size is not recorded) and one of steps, alike at the middle batch
    size."""
    return scatter.draw(_rows(shown), ax)


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a trial of each panel."""
    return scatter.numbers(_rows(shown))


@once
def _rows(shown: FigureData) -> list[scatter.Row]:
    every = scatter.searched(shown.under().trials_of_curves)
    rows = []
    texts = labels([curve.group for curve in every])
    for curve, text in zip(every, texts, strict=True):
        for limit in shown.query.under or two(shown.trials, curve):
            same = next(c for c in shown.under(limit).trials_of_curves if c.group == curve.group)
            words = [text] if len(every) > 1 else []
            rows.append(
                scatter.Row(
                    curve=same, text=", ".join([*words, str(limit)]), sizes=scatter.chosen([curve])
                )
            )
    return rows
