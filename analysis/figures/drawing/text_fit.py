"""Names that have no room: on a second line, or without their middle (``image_cla…_of_all_parts``).

A figure is drawn first and its titles, names of axes and legends are measured then, in its own
font. What would change the layout itself (the names of strips and rows) is measured before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

MISSING = "…"
_BREAKS = re.compile(rf"(?<=[\s_,/-])(?![\s,·{MISSING}])|(?<={MISSING})")
_PARTS = re.compile(r"(?<= · )|(?<=, )")
"""Where a name of several parts is broken first."""
_LINES = 2
_PASSES = 4
_HINTED = 1.04
"""How much wider a line may be on pixels than its letters are."""
_EDGE = 3.0
"""Pixels between words and the edge of the figure, and half of those between two titles."""

Fits = Callable[[str], bool]


def shortened(text: str, letters: int) -> str:
    """``text`` without its middle if it has more ``letters``."""
    if len(text) <= letters:
        return text
    kept = max(letters - len(MISSING), 2)
    return text[: -(-kept // 2)] + MISSING + text[len(text) - kept // 2 :]


def fitted(text: str, fits: Fits, lines: int = 1) -> str:
    """``text`` on at most so many ``lines`` that ``fits`` says have room, as much of it as has."""
    whole = text if fits(text) else _lines(text.replace("\n", " "), fits, lines)
    if whole is not None:
        return whole
    text = text.replace("\n", " ")
    low, high = 3, len(text)
    best = shortened(text, low)
    while low <= high:
        letters = (low + high) // 2
        lines_of = _lines(shortened(text, letters), fits, lines)
        if lines_of is None:
            high = letters - 1
        else:
            best, low = lines_of, letters + 1
    return best


def apart(texts: Sequence[str], fits: Fits, lines: int = 1) -> list[str]:
    """Each of ``texts`` as it fits, still told from the others where they differ.

    Where the middle alone tells names apart, what they have in common at their ends goes first.
    """
    short = {text: fitted(text, fits, lines) for text in texts}
    if len(set(short.values())) < len(short):
        differ = _without_common(list(short))
        short = {text: fitted(differ[text], fits, lines) for text in differ}
        if len(set(short.values())) < len(short):
            numbered = enumerate(differ.items(), 1)
            short = {text: fitted(f"{i} {rest}", fits, lines) for i, (text, rest) in numbered}
    return [short[text] for text in texts]


def within(inches: float, size: str | float = "medium") -> Fits:
    """Whether a line of text is at most so wide, in type of a ``size`` of matplotlib's."""
    font = FontProperties(size=size)

    def points(line: str) -> float:
        return float(text_to_path.get_text_width_height_descent(line, font, ismath=False)[0])

    return lambda text: max(map(points, text.split("\n"))) / 72 * _HINTED <= inches


def fit(figure: Figure) -> None:
    """Shorten or wrap the titles, the names of axes and the legends that are beyond the figure's
    edge or in another's place."""
    whole: dict[Text, str] = {}
    for _ in range(_PASSES):
        figure.draw_without_rendering()
        rooms: dict[Text, float] = {}
        for ax in figure.axes:
            if ax.get_visible():
                rooms |= _of_title(figure, ax) | _of_names(figure, ax)
        for text in _outer(figure):
            page = figure.bbox
            rooms[text] = (page.height if _upright(text) else page.width) - 2 * _EDGE
        changed = [
            _set(text, whole.setdefault(text, text.get_text()), room)
            for text, room in rooms.items()
        ]
        changed += [_fit_legend(figure, legend) for legend in _legends(figure)]
        if not any(changed):
            return


def _lines(text: str, fits: Fits, most: int) -> str | None:
    """``text`` broken into at most ``most`` lines that fit; None where that cannot be."""
    if fits(text):
        return text
    parts = _PARTS.split(text)
    halves = [("".join(parts[:i]), "".join(parts[i:])) for i in range(1, len(parts))]
    for first, last in sorted(halves, key=lambda pair: abs(len(pair[0]) - len(pair[1]))):
        if most > 1 and fits(first.rstrip(" ·")) and fits(last):
            return f"{first.rstrip(' ·')}\n{last}"
    made = [""]
    for part in _BREAKS.split(text):
        if fits((made[-1] + part).rstrip()):
            made[-1] += part
        elif fits(part.rstrip()):
            made.append(part)
        else:
            return None
    return "\n".join(line.rstrip() for line in made) if len(made) <= most else None


def _without_common(texts: Sequence[str]) -> dict[str, str]:
    """Each text without the beginning and the end that all of them share."""
    begin = _alike(texts)
    end = _alike([text[begin:][::-1] for text in texts])
    head, tail = MISSING if begin else "", MISSING if end else ""
    return {text: head + text[begin : len(text) - end] + tail for text in texts}


def _alike(texts: Sequence[str]) -> int:
    """How many letters all of them begin with."""
    unlike = (i for i, each in enumerate(zip(*texts, strict=False)) if len(set(each)) > 1)
    return next(unlike, min(map(len, texts)))


def _of_title(figure: Figure, ax: Axes) -> dict[Text, float]:
    """The room of its title, up to the page's edges and to what stands beside it; pixels."""
    title: Text = ax.title if ax.title.get_text() else ax._left_title  # type: ignore[attr-defined]
    if not title.get_text():
        return {}
    box = title.get_window_extent()
    low, high = figure.bbox.x0 + _EDGE, figure.bbox.x1 - _EDGE
    # Titles of a row stand above their axes; a bar of colours reaches as high as a title.
    bottom, top = ax.bbox.y0, box.y1
    for other in _others(figure, ax):
        if other.x0 >= ax.bbox.x1 and other.y0 < top and other.y1 > bottom:
            high = min(high, other.x0 - _EDGE)
    if title.get_horizontalalignment() == "left":
        return {title: high - box.x0}
    middle = (box.x0 + box.x1) / 2
    return {title: 2 * min(middle - low, high - middle)}


def _of_names(figure: Figure, ax: Axes) -> dict[Text, float]:
    """The room of the names of its axes, beside those of the panels next to it; pixels."""
    rooms: dict[Text, float] = {}
    mine = ax.bbox.get_points()
    for text, along in ((ax.xaxis.label, 0), (ax.yaxis.label, 1)):
        if not text.get_text():
            continue
        low, high = figure.bbox.get_points()[:, along] + [_EDGE, -_EDGE]
        first, last = mine[:, along]
        for other in _others(figure, ax) + (_across(figure) if along else []):
            theirs = other.get_points()
            if not _meet(theirs[:, 1 - along], mine[:, 1 - along]):
                continue
            begin, end = theirs[:, along]
            if begin >= last:
                high = min(high, (begin + last) / 2 - _EDGE)
            elif end <= first:
                low = max(low, (end + first) / 2 + _EDGE)
        middle = text.get_window_extent().get_points()[:, along].mean()
        rooms[text] = float(2 * min(middle - low, high - middle))
    return rooms


def _meet(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Whether two stretches, (2,) each, have a part in common."""
    return bool(min(one[1], other[1]) > max(one[0], other[0]))


def _fit_legend(figure: Figure, legend: Legend) -> bool:
    """The labels of a legend that is wider than the page, all as wide as they may be."""
    page, box, texts = figure.bbox, legend.get_window_extent(), legend.get_texts()
    # A legend in the middle of the page sticks out on either side.
    over = max(page.x0 + _EDGE - box.x0, 0) + max(box.x1 - page.x1 + _EDGE, 0)
    if over <= 0:
        return False
    columns = max(int(getattr(legend, "_ncols", 1)), 1)
    wide = [text.get_window_extent().width for text in texts]
    room = _level(wide, over, columns)
    short = apart([text.get_text() for text in texts], _fits(texts[0], room), _LINES)
    changed = [text.get_text() != new for text, new in zip(texts, short, strict=True)]
    for text, new in zip(texts, short, strict=True):
        text.set_text(new)
    return any(changed)


def _level(wide: Sequence[float], over: float, columns: int) -> float:
    """The width to which labels are cut so that the columns together are ``over`` narrower."""
    rows = -(-len(wide) // columns)
    most = np.array([max(wide[i : i + rows]) for i in range(0, len(wide), rows)])
    for room in np.linspace(most.max(), 0, 200):
        if np.maximum(most - room, 0).sum() >= over:
            return float(room)
    return 0.0


def _others(figure: Figure, ax: Axes) -> list[Bbox]:
    """The other axes of the figure, colour bars too."""
    return [each.bbox for each in figure.axes if each is not ax and each.get_visible()]


def _set(text: Text, whole: str, pixels: float) -> bool:
    """Give a text as much of the ``whole`` as has room; whether it is another text then."""
    before, fits = text.get_text(), _fits(text, pixels)
    after = "\n".join(
        line if fits(line) else fitted(line, fits, _LINES) for line in whole.split("\n")
    )
    text.set_text(after)
    return after != before


def _fits(text: Text, pixels: float) -> Fits:
    """Whether a line is at most so long, written as ``text`` is."""
    whole = text.get_text()

    def fits(line: str) -> bool:
        text.set_text(line)
        box = text.get_window_extent()
        text.set_text(whole)
        return bool((box.height if _upright(text) else box.width) <= pixels)

    return fits


def _upright(text: Text) -> bool:
    return abs(text.get_rotation() - 90) < 1


def _across(figure: Figure) -> list[Bbox]:
    """What stands above or below all panels."""
    across = [text for text in _outer(figure) if not text.get_rotation()]
    return [each.get_window_extent() for each in (*across, *figure.legends)]


def _outer(figure: Figure) -> Iterable[Text]:
    """The names that the whole figure has."""
    for name in ("_supxlabel", "_supylabel", "_suptitle"):
        text: Text | None = getattr(figure, name)
        if text is not None and text.get_text():
            yield text


def _legends(figure: Figure) -> Iterable[Legend]:
    yield from figure.legends
    for ax in figure.axes:
        legend = ax.get_legend()
        if legend is not None:
            yield legend
