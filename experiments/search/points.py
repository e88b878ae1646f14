"""Points that are chosen by hand, in the order of the file."""

from __future__ import annotations

from experiments.search.base import Request, Row, Table


class Points(Table):
    """The rows are given."""

    name = "points"
    finite = True
    alike = False
    not_enlargeable = "its points are chosen by hand"

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._points = [dict(point) for point in request.points]
        self.size = len(self._points)

    def rows(self, start: int, stop: int) -> list[Row]:
        return [dict(point) for point in self._points[start:stop]]
