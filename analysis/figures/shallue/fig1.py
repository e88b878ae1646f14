"""Shallue et al. 2019, figure 1: steps to target against batch size, a panel a workload."""

from __future__ import annotations

from analysis.figures.paper.compared import ALGORITHM, Compared, Varying
from analysis.figures.paper.panel_figure import figure

draw, numbers = figure(
    Compared(
        varying=(Varying(columns=ALGORITHM),),
        needs="no curve to draw",
        hint="this figure needs steps to target at several batch sizes",
        least=1,
    )
)
