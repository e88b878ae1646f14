"""Shallue et al. 2019, figure 4: optimizers compared, a panel a workload."""

from __future__ import annotations

from analysis.figures.paper.compared import Compared, Varying
from analysis.figures.paper.panel_figure import figure

draw, numbers = figure(
    Compared(
        varying=(Varying(columns=frozenset({"optimizer"})),),
        needs="no two optimizers on one workload to compare",
        hint="this figure needs curves that differ in the optimizer alone",
    )
)
