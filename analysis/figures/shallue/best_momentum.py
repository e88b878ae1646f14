"""Shallue et al. 2019, appendix: best momentum against batch size, as its distance from one."""

from __future__ import annotations

from analysis.figures.paper.metaparameter import BestMetaparameter

FIGURE = BestMetaparameter(
    dimension="momentum",
    measure="1 - best momentum",
    value=lambda momentum: 1 - momentum if momentum < 1 else None,
)
draw, numbers = FIGURE.draw, FIGURE.numbers
