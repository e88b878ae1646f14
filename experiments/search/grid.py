"""A full factorial grid, even on each dimension's own scale, both ends of a range included.

The grid has at least as many points as trials are wanted. A dimension of choices has all of them as
its levels; the others have as nearly equal numbers of levels as can be, the first ones by name one
more. The order is a shuffle: whatever share of the grid has been trained is spread over all of it.
"""

from __future__ import annotations

import functools
import math

from experiments.search.base import Row, Space, Table
from experiments.search.space import Value
from experiments.seeds import derive


def levels(space: Space, trials: int) -> dict[str, int]:
    """How many levels each dimension has in a grid of at least ``trials`` points.

    Fewer points only where all dimensions are choices or whole numbers, and have no more values.
    """
    counts = {n: len(d.choices) if d.scale == "discrete" else 1 for n, d in sorted(space.items())}
    while math.prod(counts.values()) < trials:
        open_ = [
            name
            for name, dimension in space.items()
            if dimension.scale != "discrete"
            and (dimension.scale != "integer" or counts[name] < dimension.extent)
        ]
        if not open_:
            break
        counts[min(open_, key=lambda name: (counts[name], name))] += 1
    return counts


class Factorial(Table):
    """The order is seeded by the study."""

    name = "grid"
    not_enlargeable = "a grid has its own levels"
    finite = True
    rounds_up = True

    @functools.cached_property
    def levels(self) -> dict[str, list[Value]]:
        """The values of each dimension."""
        counts = levels(self.space, self.trials)
        return {name: self.space[name].levels(n) for name, n in counts.items()}

    @property
    def size(self) -> int:
        return math.prod(map(len, self.levels.values()))

    def rows(self, start: int, stop: int) -> list[Row]:
        return [self._point(cell) for cell in self._order[start:stop]]

    @functools.cached_property
    def _order(self) -> list[int]:
        return sorted(range(self.size), key=lambda cell: derive(self.seed, "grid", cell))

    def _point(self, cell: int) -> Row:
        row: Row = {}
        for name, values in self.levels.items():
            cell, place = divmod(cell, len(values))
            row[name] = values[place]
        return row
