"""Shallue et al. 2019, appendix: best learning rate against batch size."""

from __future__ import annotations

from analysis.figures.paper.of_best import OfBest

FIGURE = OfBest(
    dimension="learning_rate",
    measure="best learning rate",
    value=lambda rate: rate if rate > 0 else None,
)
draw, numbers = FIGURE.draw, FIGURE.numbers
