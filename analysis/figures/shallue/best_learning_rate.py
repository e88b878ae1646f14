"""Shallue et al. 2019, appendix: best learning rate against batch size."""

from __future__ import annotations

from analysis.figures.paper.metaparameter import BestMetaparameter

FIGURE = BestMetaparameter(
    dimension="learning_rate",
    measure="best learning rate",
    value=lambda rate: rate if rate > 0 else None,
)
draw, numbers = FIGURE.draw, FIGURE.numbers
