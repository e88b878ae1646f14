"""Shallue et al. 2019, figure 5: data sets compared, of one model and optimizer."""

from __future__ import annotations

from analysis.figures.paper.compared import Compared, Varying
from analysis.figures.paper.panel_figure import figure

draw, numbers = figure(
    Compared(
        varying=(
            Varying(
                columns=frozenset({"workload", "dataset"}),
                name="data set",
                goals=True,
                must=("dataset",),
            ),
        ),
        needs="no model on two data sets to compare",
        hint="this figure needs curves of one model and optimizer that differ in the data set",
        normalized=True,
    )
)
