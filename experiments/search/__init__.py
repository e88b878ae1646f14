"""Where a study's points come from: the rows of a table, by one of several methods.

sobol    quasi-random points; the default
random   independent, uniform points
grid     a full factorial grid, in a shuffled order
points   as the experiment file lists them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.plan import Value
from experiments.search.base import Row, Table
from experiments.search.grid import Grid, grid_size
from experiments.search.points import Points
from experiments.search.sobol import Sobol
from experiments.search.uniform import Uniform
from experiments.space import Dimension

__all__ = ["ENLARGEABLE", "METHODS", "Row", "Table", "grid_size", "table"]

METHODS = ("sobol", "random", "grid", "points")
ENLARGEABLE = ("sobol", "random")
"""Methods that can fill what is added to a space as densely as the rest."""


def table(
    method: str,
    space: Mapping[str, Dimension],
    seed: int,
    trials: int,
    points: Sequence[Mapping[str, Value]] = (),
) -> Table:
    """The table of ``method``.

    Args:
        seed: 63 bits, the study's own.
        trials: how many are wanted.
        points: the rows of method ``points``.
    """
    if method == "random":
        return Uniform(space, seed)
    if method == "grid":
        return Grid(space, seed, trials)
    return Points(points) if method == "points" else Sobol(space, seed)
