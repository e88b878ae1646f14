"""Independent points, each uniform in its dimension's own scale."""

from __future__ import annotations

from experiments.search.base import Row, Table
from experiments.seeds import derive


class Uniform(Table):
    """Every coordinate is a hash of the seed, its name and its row: no generator's stream that
    another version of a library could change."""

    name = "random"

    def rows(self, start: int, stop: int) -> list[Row]:
        return [
            {
                name: dimension.value(derive(self.seed, name, row) / 2**63)
                for name, dimension in self.space.items()
            }
            for row in range(start, stop)
        ]
