"""Legends: their entries and their places.

A legend is placed in its axes where it covers no line, error bar, mark or text; if there is no such
place, between the axes and their title. One legend for all panels is above or below them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from analysis.figures.drawing.colours import faint
from analysis.figures.drawing.page import scaled, unit
from analysis.figures.drawing.style import figure_of
from analysis.figures.drawing.text_fit import within

Places = NDArray[np.float64]

HANDLE = 0.35
"""Inches of the mark of an entry."""
ROW = 0.17
"""Inches of a row."""
ABOVE: Any = {
    "loc": "lower left", "bbox_to_anchor": (0, 1.07), "ncols": 2,
    "columnspacing": 1.2, "handletextpad": 0.5, "borderpad": 0,
}  # fmt: skip
"""A legend above the title of axes that are full."""
OUTCOMES = {
    "reached": "target reached",
    "not reached": "not reached",
    "dominated": "dominated: not known",
    "infeasible": "infeasible",
}
"""The classes of trials (``analysis.curves.runs``) as legends name them."""
COMPACT: dict[str, Any] = {"handletextpad": 0.5, "labelspacing": 0.3, "borderpad": 0.2}
_WITHIN = 0.5
"""The part of its axes' width that names in a legend within them may take."""
_UNDER_TITLE = "between axes and title"
_BEHIND = 1
"""Lines of at most this order are guides: a legend may cover them."""
_LOCATIONS = {
    "upper right": (1.0, 1.0),
    "upper left": (0.0, 1.0),
    "lower left": (0.0, 0.0),
    "lower right": (1.0, 0.0),
    "center left": (0.0, 0.5),
    "center right": (1.0, 0.5),
    "lower center": (0.5, 0.0),
    "upper center": (0.5, 1.0),
}
"""Places of a legend, in parts of the axes, in order of preference."""


def entry(label: str, **options: Any) -> Line2D:
    """A legend's entry, its sizes as the settings in force have them: a line, or a marker alone
    where no ``linestyle`` is given with it."""
    marker = {"linestyle": "none"} if "marker" in options else {}
    return Line2D([], [], label=label, **scaled({**marker, **options}))


def shared_legend(
    axes: Sequence[Axes],
    handles: Sequence[Artist],
    inside: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """One legend for all panels, above them unless ``loc`` says otherwise; with ``inside``, in the
    first axes with those options instead (they are the caller's)."""
    if inside is not None:
        axes[0].legend(handles=list(handles), **inside)
        return
    usual = {"loc": "outside upper center", "columnspacing": 1.2}
    figure_of(axes[0]).legend(handles=list(handles), **{**usual, **options})


def columns_above(texts: Sequence[str], inches: float, most: int) -> int:
    """Columns of a legend above axes so many ``inches`` wide; 0 where it fits within them, for at
    most so many entries."""
    if len(texts) <= most and all(map(within(_WITHIN * inches), texts)):
        return 0
    half = within(inches / 2 - HANDLE * unit())
    return 2 if all(map(half, texts)) else 1


def under_title(ax: Axes, handles: Sequence[Artist], columns: int) -> None:
    """Put a legend between the axes and their title; ``title`` is then above it."""
    ax.legend(
        handles=list(handles), ncols=columns, loc="lower left", bbox_to_anchor=(0, 1),
        borderaxespad=0.4, columnspacing=1.2, handletextpad=0.5, borderpad=0,
    ).set_gid(_UNDER_TITLE)  # fmt: skip


def title(ax: Axes, text: str) -> None:
    """The title of axes, above the legend that is above them."""
    legend, lift = ax.get_legend(), 0.0
    if legend is not None and legend.get_gid() == _UNDER_TITLE:
        lift = legend.get_window_extent().height * 72 / figure_of(ax).dpi + 2
    ax.set_title(text, color=faint(), fontsize="small", pad=5 * unit() + lift)


def place_legends(
    axes: Sequence[Axes], handles: Sequence[Sequence[Artist]], *, given: bool
) -> list[float]:
    """A legend in each panel that has handles, or above each of them where one does not fit;
    points by which each title is to be raised for it, the same in a row.

    On axes that are ``given`` a legend that fits is placed when they are drawn, which may be after
    they are laid out.
    """
    figure = figure_of(axes[0])
    with_legend = [(ax, entries) for ax, entries in zip(axes, handles, strict=True) if entries]
    if not with_legend:
        return [0.0] * len(axes)
    if not given:
        figure.draw_without_rendering()  # lays out: what is free must be known
    locations = [
        free_location(_legend(ax, entries, loc="upper right")) for ax, entries in with_legend
    ]
    if None not in locations:
        for (ax, entries), location in zip(with_legend, locations, strict=True):
            _legend(ax, entries, loc="best" if given or location is None else location)
        return [0.0] * len(axes)
    columns = min(_columns(ax, entries) for ax, entries in with_legend)
    heights = dict.fromkeys(map(_row, axes), 0.0)
    for ax, entries in with_legend:
        height = _above(ax, entries, columns).get_window_extent().height * 72 / figure.dpi
        heights[_row(ax)] = max(heights[_row(ax)], height)
    if not given:
        width, total = figure.get_size_inches()
        figure.set_size_inches(width, total + sum(heights.values()) / 72)
    return [heights[_row(ax)] for ax in axes]


def _row(ax: Axes) -> int:
    spec = ax.get_subplotspec()
    return 0 if spec is None else int(spec.rowspan.start)


def _legend(ax: Axes, handles: Sequence[Artist], **options: Any) -> Legend:
    return ax.legend(handles=list(handles), fontsize=6 * unit(), **{**COMPACT, **options})


def _above(ax: Axes, handles: Sequence[Artist], columns: int) -> Legend:
    return _legend(
        ax, handles, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, ncols=columns,
        columnspacing=1.2,
    )  # fmt: skip


def _columns(ax: Axes, handles: Sequence[Artist]) -> int:
    """The most columns that fit the width of the axes, and no more than fill the rows."""
    for rows in range(1, len(handles)):
        columns = -(-len(handles) // rows)
        if _above(ax, handles, columns).get_window_extent().width <= ax.bbox.width:
            return columns
    return 1


def free_location(legend: Legend) -> str | None:
    """The first of matplotlib's locations at which the legend covers nothing of its axes as they
    are laid out now; None where there is none."""
    ax = legend.axes
    assert ax is not None
    box, drawn = legend.get_window_extent(), _Drawn(ax)
    size = np.array([box.width, box.height])
    text = legend.get_texts()[0]
    pad = float(legend.borderaxespad) * float(text.get_fontsize()) * _pixels_per_point(ax)
    low, high = ax.bbox.get_points()
    low, spare = low + pad, high - low - 2 * pad - size
    if (spare < 0).any():
        return None
    for name, part in _LOCATIONS.items():
        corner = low + np.array(part) * spare
        if not drawn.meets(corner, corner + size):
            return name
    return None


class _Drawn:
    """The drawing on axes: straight pieces, (n, 2, 2), and marks with their radii, (m, 2) and
    (m, 1), in pixels."""

    def __init__(self, ax: Axes) -> None:
        pieces, marks = [np.zeros((0, 2, 2))], [np.zeros((0, 2))]
        radii = [np.zeros((0, 1))]
        for line in ax.get_lines():
            if not line.get_visible() or line.get_zorder() <= _BEHIND:
                continue
            path = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float))
            if line.get_linestyle() not in ("None", "", " "):
                pieces.append(_pairs(path))
            if line.get_marker() not in ("None", None, "", " "):
                marks.append(path[np.isfinite(path).all(1)])
                radius = line.get_markersize() / 2 * _pixels_per_point(ax)
                radii.append(np.full((len(marks[-1]), 1), radius))
        for lines in ax.collections:
            if isinstance(lines, LineCollection) and lines.get_visible():
                transform = lines.get_transform().transform
                pieces += [_pairs(transform(segment)) for segment in lines.get_segments()]
        for text in ax.texts:  # and arrows, which belong to texts
            low, high = text.get_window_extent().get_points()
            pieces.append(np.array([[low, high], [[low[0], high[1]], [high[0], low[1]]]]))
        self.pieces, self.marks = np.concatenate(pieces), np.concatenate(marks)
        self.radii = np.concatenate(radii)

    def meets(self, low: Places, high: Places) -> bool:
        """Whether any of it is in the box between two corners, in pixels."""
        near = (self.marks > low - self.radii) & (self.marks < high + self.radii)
        if near.all(1).any():
            return True
        # A piece is in the box where its parts within the slabs of both axes overlap.
        start, way = self.pieces[:, 0], self.pieces[:, 1] - self.pieces[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.stack([(low - start) / way, (high - start) / way])
        level = way == 0
        inside = (start > low) & (start < high)
        first = np.where(level, np.where(inside, -np.inf, np.inf), ends.min(0)).max(1)
        last = np.where(level, np.where(inside, np.inf, -np.inf), ends.max(0)).min(1)
        return bool((np.maximum(first, 0) < np.minimum(last, 1)).any())


def _pairs(path: Places) -> Places:
    """Neighbours along a path, without those of which one is not finite; (n, 2, 2)."""
    pairs = np.stack([path[:-1], path[1:]], axis=1)
    return pairs[np.isfinite(pairs).all((1, 2))]


def _pixels_per_point(ax: Axes) -> float:
    return float(figure_of(ax).dpi) / 72
