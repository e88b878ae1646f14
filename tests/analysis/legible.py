"""Can a figure be read? Everything that is written in it is drawn once, and its place is kept.

A fault is a word, a legend or a mark beyond the edge of the page, two words on each other, words
on the panel or the bar of colours of another axes, a legend over words that are not its own or over
lines, error bars or marks, or words over a curve's marks. Ticks beyond the limits of an
axis are not drawn, and so not looked at. Lines that lead the eye, behind all else, may pass under a
legend with a ground of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text

_SLACK = 0.12
"""The part of a line of text that is not ink: boxes may meet by that much."""


def figure_of(part: Any) -> Figure:
    """The whole figure that axes, a line or a text is in."""
    figure = part.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


def texts(ax: Any) -> list[str]:
    """All words that are shown in the figure of these axes."""
    figure = figure_of(ax)
    figure.draw_without_rendering()
    return [t.get_text() for t in figure.findobj(Text) if t.get_visible() and t.get_text()]


def faults(figure: Figure) -> list[str]:
    """What cannot be read, a sentence each; none of a figure that is in order."""
    texts, legends, lines = _drawn(figure)
    reasons = []
    page = figure.bbox
    for text in texts:
        corners = _corners(text)
        inside = (corners >= [page.x0 - 1, page.y0 - 1]) & (corners <= [page.x1 + 1, page.y1 + 1])
        if not inside.all():
            reasons.append(f"{_quoted(text)} is cut by the page")
    reasons += _on_others(figure, texts)
    for line in lines:
        reasons += _beyond(line, page)
    shapes = [(text, _shrunk(_corners(text), _SLACK * _height(text))) for text in texts]
    for i, j in _near([shape for _, shape in shapes]):
        if _meet(shapes[i][1], shapes[j][1]):
            reasons.append(f"{_quoted(shapes[i][0])} and {_quoted(shapes[j][0])} are on each other")
    for legend in legends:
        own_texts = {id(text) for text in legend.findobj(Text)}
        box = _box(legend.get_window_extent())
        if not ((box >= [page.x0 - 1, page.y0 - 1]) & (box <= [page.x1 + 1, page.y1 + 1])).all():
            reasons.append(f"the legend of {_first(legend)} is cut by the page")
        for text, shape in shapes:
            if id(text) not in own_texts and _meet(_inner(legend), shape):
                reasons.append(f"{_quoted(text)} is under the legend of {_first(legend)}")
    inner = [(legend, _inner(legend)) for legend in legends]
    for line in lines:
        reasons += _covered(line, texts, inner)
    for legend in legends:
        reasons += _lying(legend)
    return reasons


def _on_others(figure: Figure, texts: list[Text]) -> Iterator[str]:
    """Words that are on a panel which is not theirs."""
    panels = [ax for ax in figure.axes if ax.get_visible() and ax.axison]
    for text in texts:
        shape = _shrunk(_corners(text), _SLACK * _height(text))
        for ax in panels:
            is_own = text.axes is ax or (text.axes is None and _inside(text, ax))
            if not is_own and _meet(shape, _shrunk(_box(ax.bbox), 1)):
                yield f"{_quoted(text)} is on another panel"


def _inside(text: Text, ax: Any) -> bool:
    """Whether a text without axes is a part of these: their ticks' numbers, their legend."""
    return any(text is part for part in ax.findobj(Text))


def _beyond(line: Line2D, page: Any) -> Iterator[str]:
    """Marks that are not cut by a frame but by the page."""
    if line.get_clip_on() or line.get_marker() in ("None", None, "", " "):
        return
    at = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float))
    at = at[np.isfinite(at).all(1)]
    low, high = page.get_points()
    if ((at < low) | (at > high)).any():
        yield f"a mark of {to_hex(line.get_color())} is cut by the page"


def _lying(legend: Legend) -> Iterator[str]:
    """Lines and error bars of its axes that a legend is over, each once by its colour."""
    if legend.axes is None:
        return
    low, high = _inner(legend)[[0, 2]]
    said = set()
    for colour, behind, path in _paths(legend.axes):
        if behind and legend.get_frame_on():
            continue
        if any(_crosses(part, low, high) for part in path) and colour not in said:
            said.add(colour)
            yield f"a line of {colour} is under the legend of {_first(legend)}"


def _paths(ax: Any) -> Iterator[tuple[str, bool, list[np.ndarray]]]:
    """What is drawn of the lines of axes: colour, whether it is behind all else, and the pieces
    between neighbours in pixels, (2, 2) each."""
    for line in ax.get_lines():
        if line.get_visible() and line.get_linestyle() not in ("None", "", " "):
            at = line.get_transform().transform(np.asarray(line.get_xydata(), dtype=float))
            yield to_hex(line.get_color()), line.get_zorder() <= 1, _pieces(ax, at)
    for many in ax.collections:
        if isinstance(many, LineCollection) and many.get_visible():
            for path in many.get_segments():
                at = many.get_transform().transform(np.asarray(path, dtype=float))
                colour: Any = many.get_colors()
                yield to_hex(colour[0]), many.get_zorder() <= 1, _pieces(ax, at)

    for text in ax.texts:
        if isinstance(text, Annotation) and text.arrow_patch is not None:
            arrow = text.arrow_patch
            at = arrow.get_transform().transform(arrow.get_path().vertices)
            yield to_hex(arrow.get_edgecolor()), False, _pieces(ax, at)


def _pieces(ax: Any, at: np.ndarray) -> list[np.ndarray]:
    pieces = [np.array(pair) for pair in pairwise(at)]
    frame = ax.bbox.get_points()
    return [piece for piece in pieces if np.isfinite(piece).all() and _crosses(piece, *frame)]


def _crosses(piece: np.ndarray, low: np.ndarray, high: np.ndarray) -> bool:
    """Whether a straight piece has a point in an upright box (its sides' slabs in common)."""
    start, way = piece[0], piece[1] - piece[0]
    first, last = 0.0, 1.0
    for axis in range(2):
        if way[axis] == 0:
            if not low[axis] < start[axis] < high[axis]:
                return False
            continue
        ends = sorted(
            ((low[axis] - start[axis]) / way[axis], (high[axis] - start[axis]) / way[axis])
        )
        first, last = max(first, ends[0]), min(last, ends[1])
    return first < last


def _near(shapes: list[np.ndarray]) -> list[tuple[int, int]]:
    """Pairs of shapes whose upright boxes meet."""
    if not shapes:
        return []
    low = np.array([shape.min(0) for shape in shapes])
    high = np.array([shape.max(0) for shape in shapes])
    apart = (low[:, None] >= high[None]).any(2)
    return [(i, j) for i, j in np.argwhere(~(apart | apart.T)) if i < j]


def _covered(
    line: Line2D, texts: list[Text], legends: list[tuple[Legend, np.ndarray]]
) -> Iterator[str]:
    """Words and legends of the same axes that are over a line's marks."""
    if line.get_marker() in ("None", None, "", " ", "|", "_") or line.axes is None:
        return
    if line.get_transform() != line.axes.transData:
        return
    at = line.axes.transData.transform(np.asarray(line.get_xydata(), dtype=float))
    frame = line.axes.bbox.padded(1).get_points()
    at = at[np.isfinite(at).all(1) & (at >= frame[0]).all(1) & (at <= frame[1]).all(1)]
    root = figure_of(line.axes)
    radius = line.get_markersize() / 2 * root.dpi / 72
    for legend, inner in legends:
        if legend.axes is not line.axes:
            continue
        around = _shrunk(inner, -0.8 * radius)
        if any(_holds(around, point) for point in at):
            yield f"marks of {line.get_label()!r} are under the legend of {_first(legend)}"
    for text in texts:
        if text.axes is line.axes and text in line.axes.texts:
            shape = _shrunk(_corners(text), _SLACK * _height(text))
            if any(_holds(shape, point) for point in at):
                yield f"{_quoted(text)} is over a mark"


def _drawn(figure: Figure) -> tuple[list[Text], list[Legend], list[Line2D]]:
    texts: list[Text] = []
    legends: list[Legend] = []
    lines: list[Line2D] = []
    with _watched(Text, texts), _watched(Legend, legends), _watched(Line2D, lines):
        figure.draw_without_rendering()
    written = [text for text in texts if text.get_visible() and text.get_text().strip()]
    return list(dict.fromkeys(written)), legends, [line for line in lines if line.get_visible()]


@contextmanager
def _watched(kind: Any, seen: list[Any]) -> Iterator[None]:
    draw = kind.draw

    def watched(self: Any, renderer: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(self)
        return draw(self, renderer, *args, **kwargs)

    kind.draw = watched
    try:
        yield
    finally:
        kind.draw = draw


def _corners(text: Text) -> np.ndarray:
    """The corners of what is written in pixels, turned as it is; (4, 2)."""
    box = Text.get_window_extent(text)
    turn = np.deg2rad(text.get_rotation())
    cos, sin = abs(np.cos(turn)), abs(np.sin(turn))
    if min(cos, sin) < 1e-6:
        return _box(box)
    # Of the upright box that holds it follow its own sides; they do not at 45 degrees.
    assert abs(cos - sin) > 1e-3, "45 degrees"
    wide = (box.width * cos - box.height * sin) / (cos**2 - sin**2)
    tall = (box.height * cos - box.width * sin) / (cos**2 - sin**2)
    turned = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    half = np.array([[-wide, -tall], [wide, -tall], [wide, tall], [-wide, tall]]) / 2
    return half @ turned + [(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2]


def _box(box: Any) -> np.ndarray:
    return np.array([[box.x0, box.y0], [box.x1, box.y0], [box.x1, box.y1], [box.x0, box.y1]])


def _inner(legend: Legend) -> np.ndarray:
    """What is in a legend, without the room within its frame, which is not drawn; (4, 2)."""
    text = legend.get_texts()[0]
    root = figure_of(text)
    padding = float(legend.borderpad) * float(text.get_fontsize()) * root.dpi / 72
    return _box(legend.get_window_extent().padded(-padding - 1))


def _height(text: Text) -> float:
    """Of one line, in pixels."""
    corners = _corners(text)
    sides = np.linalg.norm(corners[1] - corners[0]), np.linalg.norm(corners[2] - corners[1])
    return float(min(sides)) / (1 + text.get_text().count("\n"))


def _shrunk(corners: np.ndarray, by: float) -> np.ndarray:
    """``by`` pixels less on each side."""
    middle = corners.mean(0)
    away = corners - middle
    sides = np.array([corners[1] - corners[0], corners[3] - corners[0]])
    lengths = np.maximum(np.linalg.norm(sides, axis=1), 1e-9)
    along = away @ (sides / lengths[:, None]).T
    less = np.sign(along) * np.maximum(np.abs(along) - by, 0)
    return middle + less @ (sides / lengths[:, None])


def _meet(first: np.ndarray, other: np.ndarray) -> bool:
    """Whether two convex shapes share a point: no side of either keeps them apart."""
    for shape in (first, other):
        for side in np.roll(shape, -1, axis=0) - shape:
            across = np.array([-side[1], side[0]])
            left, right = first @ across, other @ across
            if left.max() <= right.min() or right.max() <= left.min():
                return False
    return True


def _holds(shape: np.ndarray, point: np.ndarray) -> bool:
    sides = np.roll(shape, -1, axis=0) - shape
    away = point - shape
    turn = sides[:, 0] * away[:, 1] - sides[:, 1] * away[:, 0]
    return bool((turn > 0).all() or (turn < 0).all())


def _quoted(text: Text) -> str:
    return repr(text.get_text())


def _first(legend: Legend) -> str:
    return repr(legend.get_texts()[0].get_text())
