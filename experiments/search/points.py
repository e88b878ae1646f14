"""Points that are chosen by hand, in the order of the file."""

from __future__ import annotations

from experiments.search.base import Row, Table


class Points(Table):
    """The rows are given."""

    name = "points"
    finite = True
    alike = False
    not_enlargeable = "its points are chosen by hand"

    @property
    def size(self) -> int:
        return len(self.points)

    def rows(self, start: int, stop: int) -> list[Row]:
        return [dict(point) for point in self.points[start:stop]]
