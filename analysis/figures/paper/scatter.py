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
from analysis.figures.drawing.style import plain
from analysis.figures.search import has_momentum, rows_of
from results.errors import ResultsError

MOST = 4
"""Batch sizes in a row: the smallest, the largest, and between them evenly."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of panels: some batch sizes of a curve."""

    curve: Curve
    text: str
    """What tells it from the other rows."""
    sizes: Sequence[int]

    @property
    def points(self) -> list[Point]:
        """Those of ``sizes``."""
        return [point for point in self.curve.points if point.batch_size in self.sizes]


def searched(curves: Sequence[Curve]) -> list[Curve]:
    """The curves with a momentum.

    Raises:
        ResultsError: there is none.
    """
    found = [curve for curve in curves if any(map(has_momentum, curve.points))]
    if not found:
        raise ResultsError(
            "no trials with a learning rate and a momentum to draw",
            hint="this figure needs a search that tunes both: optimizer momentum or nesterov",
        )
    return found


def chosen(curves: Sequence[Curve]) -> list[int]:
    """At most ``MOST`` of the batch sizes that all ``curves`` have."""
    each = [{p.batch_size for p in curve.points if has_momentum(p)} for curve in curves]
    sizes = sorted(set.intersection(*each))
    if len(sizes) <= MOST:
        return sizes
    at = np.round(np.linspace(0, len(sizes) - 1, MOST)).astype(int)
    return [sizes[i] for i in at]


def draw(rows: Sequence[Row], ax: Axes | None) -> Axes:
    """A panel a batch size of each row."""
    blocks = [
        [(_title(row, point, place), point) for place, point in enumerate(row.points)]
        for row in rows
        if row.points
    ]
    return search.draw_blocks(blocks, ax=ax, across=max(map(len, blocks)))


def numbers(rows: Sequence[Row]) -> pd.DataFrame:
    """A row a trial of each panel."""
    return pd.DataFrame(
        [
            {"curve": row.curve.label, "row": row.text, **each}
            for row in rows
            for point in row.points
            for each in rows_of(point)
        ]
    )


def _title(row: Row, point: Point, place: int) -> str:
    """The row's text stands over its first panel, and has the room of all."""
    size = f"B = {plain(point.batch_size)}"
    return f"{row.text}\n{size}" if row.text and not place else size
