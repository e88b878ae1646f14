"""A legend that has no room within its axes: over them, under their title."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis.figures.drawing.colours import faint
from analysis.figures.drawing.page import unit
from analysis.figures.drawing.text_fit import within

HANDLE = 0.35
"""Inches of the mark of an entry."""
ROW = 0.17
"""Inches of a row."""
_WITHIN = 0.5
"""The part of its axes' width that names in a legend within them may take."""
_OVER = "over the axes"
_STYLE: dict[str, Any] = {
    "loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.4, "columnspacing": 1.2,
    "handletextpad": 0.5, "borderpad": 0,
}  # fmt: skip


def columns(texts: Sequence[str], inches: float, most: int) -> int:
    """Columns of a legend over axes so many ``inches`` wide; 0 where it has room within, for at
    most so many entries."""
    if len(texts) <= most and all(map(within(_WITHIN * inches), texts)):
        return 0
    half = within(inches / 2 - HANDLE * unit())
    return 2 if all(map(half, texts)) else 1


def over(ax: Axes, handles: Sequence[Artist], columns: int) -> None:
    """Put it there; ``title`` then leaves room for it."""
    ax.legend(handles=list(handles), ncols=columns, **_STYLE).set_gid(_OVER)


def title(ax: Axes, text: str) -> None:
    """The title of axes, over a legend that stands over them."""
    legend, figure = ax.get_legend(), ax.get_figure(root=True)
    assert figure is not None
    up = 0.0
    if legend is not None and legend.get_gid() == _OVER:
        up = legend.get_window_extent().height * 72 / figure.dpi + 2
    ax.set_title(text, color=faint(), fontsize="small", pad=5 * unit() + up)
