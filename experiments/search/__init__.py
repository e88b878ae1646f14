"""Where a study's points come from: the rows of a table, by one of several methods.

sobol    quasi-random points; the default
random   independent, uniform points
grid     a full factorial grid, in a shuffled order
points   as the experiment file lists them

A new method is one file of this folder, with a subclass of ``Table`` that has a ``name``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.registry import find_packaged
from experiments.search.base import Row, Space, Table
from experiments.search.space import Value

__all__ = ["DRAWN_AT_MOST", "METHODS", "Row", "Table", "max_rows", "table"]


_BY_FILE = find_packaged(__name__, Table)  # type: ignore[type-abstract]
METHODS = dict(sorted(_BY_FILE.items(), key=lambda item: item[0] != "sobol"))
DRAWN_AT_MOST = 4
"""Times the trials wanted: how many rows of a table may be drawn to find so many feasible, and how
many trials an enlargement may add."""


def max_rows(method: str, trials: int) -> int:
    """Rows that may be drawn to find so many feasible trials."""
    return trials if METHODS[method].finite else DRAWN_AT_MOST * trials


def table(
    method: str, space: Space, seed: int, trials: int, points: Sequence[Mapping[str, Value]] = ()
) -> Table:
    """The table of ``method``; the other arguments are those of ``Table``."""
    return METHODS[method](space, seed, trials, points)
