"""Room for a legend within axes: a place where it lies over no line, error bar, mark or word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.legend import Legend
from numpy.typing import NDArray

Places = NDArray[np.float64]

_BEHIND = 1
"""Lines of at most this order lead the eye: a legend may be over them."""
_PLACES = {
    "upper right": (1.0, 1.0),
    "upper left": (0.0, 1.0),
    "lower left": (0.0, 0.0),
    "lower right": (1.0, 0.0),
    "center left": (0.0, 0.5),
    "center right": (1.0, 0.5),
    "lower center": (0.5, 0.0),
    "upper center": (0.5, 1.0),
}
"""Where a legend may stand, in parts of the axes, the place that is looked for first first."""


def place(legend: Legend) -> str | None:
    """The first of matplotlib's places at which the legend lies over nothing of its axes as they
    are laid out now; None: there is no room in them."""
    ax = legend.axes
    assert ax is not None
    box, taken = legend.get_window_extent(), _taken(ax)
    size = np.array([box.width, box.height])
    text = legend.get_texts()[0]
    pad = float(legend.borderaxespad) * float(text.get_fontsize()) * _dots(ax)
    low, high = ax.bbox.get_points()
    low, spare = low + pad, high - low - 2 * pad - size
    if (spare < 0).any():
        return None
    for name, part in _PLACES.items():
        least = low + np.array(part) * spare
        if not taken.meets(least, least + size):
            return name
    return None


class _Taken:
    """What is drawn: straight pieces, (n, 2, 2), and marks with their radii, (m, 2) and (m,)."""

    def __init__(self, pieces: Sequence[Places], marks: Sequence[Places], radii: list[float]):
        self.pieces = np.concatenate([np.zeros((0, 2, 2)), *pieces])
        self.marks = np.concatenate([np.zeros((0, 2)), *marks])
        self.radii = np.repeat(radii, [len(some) for some in marks])[:, None]

    def meets(self, low: Places, high: Places) -> bool:
        """Whether any of it is in the box between two corners, in pixels."""
        near = (self.marks > low - self.radii) & (self.marks < high + self.radii)
        if near.all(1).any():
            return True
        # A piece is in the box where its parts within the slabs of both axes have one in common.
        start, way = self.pieces[:, 0], self.pieces[:, 1] - self.pieces[:, 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = np.stack([(low - start) / way, (high - start) / way])
        level = way == 0
        within = (start > low) & (start < high)
        first = np.where(level, np.where(within, -np.inf, np.inf), ends.min(0)).max(1)
        last = np.where(level, np.where(within, np.inf, -np.inf), ends.max(0)).min(1)
        return bool((np.maximum(first, 0) < np.minimum(last, 1)).any())


def _taken(ax: Axes) -> _Taken:
    pieces, marks, radii = [], [], []
    for line in ax.get_lines():
        if not line.get_visible() or line.get_zorder() <= _BEHIND:
            continue
        at = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float))
        if line.get_linestyle() not in ("None", "", " "):
            pieces.append(_pairs(at))
        if line.get_marker() not in ("None", None, "", " "):
            marks.append(at[np.isfinite(at).all(1)])
            radii.append(line.get_markersize() / 2 * _dots(ax))
    for many in ax.collections:
        if isinstance(many, LineCollection) and many.get_visible():
            pieces += [_pairs(many.get_transform().transform(each)) for each in many.get_segments()]
    for words in ax.texts:  # and arrows, which are of words
        low, high = words.get_window_extent().get_points()
        pieces.append(np.array([[low, high], [[low[0], high[1]], [high[0], low[1]]]]))
    return _Taken(pieces, marks, radii)


def _pairs(at: Places) -> Places:
    """Neighbours along a path, those left out of which one is not known; (n, 2, 2)."""
    both = np.stack([at[:-1], at[1:]], axis=1)
    return both[np.isfinite(both).all((1, 2))]


def _dots(ax: Axes) -> float:
    """Pixels of a point."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return float(figure.dpi) / 72
