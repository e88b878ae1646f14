"""Points that somebody has chosen, in the order of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.plan import Value
from experiments.search.base import History, Row, Table


class Points(Table):
    """The rows are given."""

    def __init__(self, points: Sequence[Mapping[str, Value]]) -> None:
        self._points = [dict(point) for point in points]
        self.size = len(self._points)

    def rows(self, start: int, stop: int, history: History = ()) -> list[Row]:  # noqa: ARG002
        return [dict(point) for point in self._points[start:stop]]
