"""Where a study's points come from: the rows of a table, by one of several methods.

sobol    quasi-random points; the default
random   independent, uniform points
grid     a full factorial grid, in a shuffled order
points   as the experiment file lists them
optuna:… one of Optuna's samplers: each point depends on how the earlier ones came out
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.plan import Value
from experiments.search import adaptive
from experiments.search.adaptive import Adaptive
from experiments.search.base import History, Row, Table
from experiments.search.grid import Grid, grid_size
from experiments.search.points import Points
from experiments.search.sobol import Sobol
from experiments.search.space import Dimension
from experiments.search.uniform import Uniform

__all__ = ["ENLARGEABLE", "METHODS", "History", "Row", "Table", "block", "grid_size", "table"]

METHODS = ("sobol", "random", "grid", "points", *adaptive.METHODS)
ENLARGEABLE = ("sobol", "random")
"""Methods that can fill what is added to a space as densely as the rest."""


def block(method: str) -> int | None:
    """How many rows an adaptive method draws at a time; ``None``: all rows are there from the
    beginning."""
    return adaptive.BLOCK if method in adaptive.METHODS else None


def table(
    method: str,
    space: Mapping[str, Dimension],
    seed: int,
    trials: int,
    points: Sequence[Mapping[str, Value]] = (),
    *,
    worst: float = 1.0,
) -> Table:
    """The table of ``method``.

    Args:
        seed: 63 bits, the study's own.
        trials: how many are wanted.
        points: the rows of method ``points``.
        worst: steps that an adaptive method takes for those of a trial that missed the target.
    """
    if method in adaptive.METHODS:
        return Adaptive(method, space, seed, worst)
    if method == "random":
        return Uniform(space, seed)
    if method == "grid":
        return Grid(space, seed, trials)
    return Points(points) if method == "points" else Sobol(space, seed)
