"""Learning rate against 1 - momentum of the trials at some batch sizes, in rows of panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.curves.curve import Curve
from analysis.curves.points import Point
from analysis.figures import search
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import plain
from results.errors import ResultsError

MOST = 4
"""Batch sizes in a row: the smallest, the largest, and between them evenly."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of panels: some batch sizes of a curve."""

    curve: Curve
    name: str
    """The name that distinguishes it from the other rows."""
    sizes: Sequence[int]

    @property
    def points(self) -> list[Point]:
        """Those of ``sizes``."""
        return [point for point in self.curve.points if point.batch_size in self.sizes]


def with_momentum(curves: Sequence[Curve]) -> list[Curve]:
    """The curves with a momentum.

    Raises:
        ResultsError: there is none.
    """
    chosen = [curve for curve in curves if any(map(search.has_momentum, curve.points))]
    if not chosen:
        raise ResultsError(
            "no trials with a learning rate and a momentum to draw",
            hint="this figure needs a search that tunes both: optimizer momentum or nesterov",
        )
    return chosen


def shared_sizes(curves: Sequence[Curve]) -> list[int]:
    """At most ``MOST`` of the batch sizes that all ``curves`` have."""
    of_curves = [{p.batch_size for p in c.points if search.has_momentum(p)} for c in curves]
    sizes = sorted(set.intersection(*of_curves))
    if len(sizes) <= MOST:
        return sizes
    return [sizes[i] for i in np.round(np.linspace(0, len(sizes) - 1, MOST)).astype(int)]


def draw_rows(rows: Sequence[Row], ax: Axes | None, page: Page | None) -> Axes:
    """A panel a batch size of each row."""
    blocks = [
        [(_title(row, point, place), point) for place, point in enumerate(row.points)]
        for row in rows
        if row.points
    ]
    columns = max(map(len, blocks))
    return search.draw_blocks(blocks, ax=ax, page=page or Page(), columns=columns)


def tabulate_rows(rows: Sequence[Row]) -> pd.DataFrame:
    """A row a trial of each panel."""
    return pd.DataFrame(
        [
            {"curve": row.curve.label, "row": row.name, **values}
            for row in rows
            for point in row.points
            for values in search.rows_of(point)
        ]
    )


def _title(row: Row, point: Point, place: int) -> str:
    """The row's name is above its first panel, and may be as wide as all."""
    size = f"B = {plain(point.batch_size)}"
    return f"{row.name}\n{size}" if row.name and not place else size
