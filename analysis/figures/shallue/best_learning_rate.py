"""Shallue et al. 2019, appendix: best learning rate against batch size."""

from __future__ import annotations

from analysis.figures.paper.metaparameter import BestMetaparameter
from analysis.figures.paper.panel_figure import figure

draw, numbers = figure(
    BestMetaparameter(
        dimension="learning_rate",
        measure="best learning rate",
        value=lambda rate: rate if rate > 0 else None,
    )
)
