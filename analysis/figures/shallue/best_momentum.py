"""Shallue et al. 2019, appendix: best momentum against batch size, as its distance from one."""

from __future__ import annotations

from analysis.figures.paper.metaparameter import BestMetaparameter
from analysis.figures.paper.panel_figure import figure

draw, numbers = figure(
    BestMetaparameter(
        dimension="momentum",
        measure="1 - best momentum",
        value=lambda momentum: 1 - momentum if momentum < 1 else None,
    )
)
