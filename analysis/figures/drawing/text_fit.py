"""Names that are too long for their place: on a second line, or without their middle
(``image_cla…_of_all_parts``).

A figure is drawn first; then its titles, names of axes and legends are measured in its own font.
What would change the layout itself (the names of strips and rows) is measured before.
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

MISSING = "…"
_BREAKS = re.compile(rf"(?<=[\s_,/-])(?![\s,·{MISSING}])|(?<={MISSING})")
_PARTS = re.compile(r"(?<= · )|(?<=, )")
"""Places at which a name of several parts is broken first."""
_LINES = 2
_PASSES = 4
_HINTED = 1.04
"""Factor by which a line may be wider in pixels than its letters."""
_EDGE = 3.0
"""Pixels between text and the edge of the figure, and half of those between two titles."""

Fits = Callable[[str], bool]


def shortened(text: str, letters: int) -> str:
    """``text`` without its middle if it has more ``letters``."""
    if len(text) <= letters:
        return text
    kept = max(letters - len(MISSING), 2)
    return text[: -(-kept // 2)] + MISSING + text[len(text) - kept // 2 :]


def fitted(text: str, fits: Fits, lines: int = 1) -> str:
    """As much of ``text`` as fits on at most so many ``lines``; ``fits`` judges a line."""
    whole = text if fits(text) else _broken(text.replace("\n", " "), fits, lines)
    if whole is not None:
        return whole
    text = text.replace("\n", " ")
    low, high = 3, len(text)
    best = shortened(text, low)
    while low <= high:
        letters = (low + high) // 2
        broken = _broken(shortened(text, letters), fits, lines)
        if broken is None:
            high = letters - 1
        else:
            best, low = broken, letters + 1
    return best


def distinct(texts: Sequence[str], fits: Fits, lines: int = 1) -> list[str]:
    """Each of ``texts`` as it fits; those that differ still differ.

    Where names differ in the middle alone, what they have in common at their ends is cut first.
    """
    short = {text: fitted(text, fits, lines) for text in texts}
    if len(set(short.values())) < len(short):
        differences = _without_common(list(short))
        short = {text: fitted(rest, fits, lines) for text, rest in differences.items()}
        if len(set(short.values())) < len(short):
            numbered = enumerate(differences.items(), 1)
            short = {text: fitted(f"{i} {rest}", fits, lines) for i, (text, rest) in numbered}
    return [short[text] for text in texts]


def within(inches: float, size: str | float = "medium") -> Fits:
    """Whether a line of text is at most so wide, in type of a ``size`` of matplotlib's."""
    font = FontProperties(size=size)

    def points(line: str) -> float:
        return float(text_to_path.get_text_width_height_descent(line, font, ismath=False)[0])

    return lambda text: max(map(points, text.split("\n"))) / 72 * _HINTED <= inches


def fit_figure(figure: Figure) -> None:
    """Shorten or wrap the titles, the names of axes and the legends that reach beyond the figure's
    edge or into another's place."""
    originals: dict[Text, str] = {}
    for _ in range(_PASSES):
        figure.draw_without_rendering()
        widths: dict[Text, float] = {}
        for ax in figure.axes:
            if ax.get_visible():
                widths |= _title_width(figure, ax) | _name_widths(figure, ax)
        for text in _figure_texts(figure):
            page = figure.bbox
            widths[text] = (page.height if _is_upright(text) else page.width) - 2 * _EDGE
        changed = [
            _set(text, originals.setdefault(text, text.get_text()), width)
            for text, width in widths.items()
        ]
        legends = [*figure.legends, *filter(None, (ax.get_legend() for ax in figure.axes))]
        changed += [_fit_legend(figure, legend) for legend in legends]
        if not any(changed):
            return


def _broken(text: str, fits: Fits, most: int) -> str | None:
    """``text`` broken into at most ``most`` lines that fit; None where that is impossible."""
    if fits(text):
        return text
    parts = _PARTS.split(text)
    halves = [("".join(parts[:i]), "".join(parts[i:])) for i in range(1, len(parts))]
    for first, last in sorted(halves, key=lambda pair: abs(len(pair[0]) - len(pair[1]))):
        if most > 1 and fits(first.rstrip(" ·")) and fits(last):
            return f"{first.rstrip(' ·')}\n{last}"
    lines = [""]
    for part in _BREAKS.split(text):
        if fits((lines[-1] + part).rstrip()):
            lines[-1] += part
        elif fits(part.rstrip()):
            lines.append(part)
        else:
            return None
    return "\n".join(line.rstrip() for line in lines) if len(lines) <= most else None


def _without_common(texts: Sequence[str]) -> dict[str, str]:
    """Each text without the beginning and the end that all of them share."""
    begin = _shared_letters(texts)
    end = _shared_letters([text[begin:][::-1] for text in texts])
    head, tail = MISSING if begin else "", MISSING if end else ""
    return {text: head + text[begin : len(text) - end] + tail for text in texts}


def _shared_letters(texts: Sequence[str]) -> int:
    """How many letters all of them begin with."""
    unlike = (i for i, letters in enumerate(zip(*texts, strict=False)) if len(set(letters)) > 1)
    return next(unlike, min(map(len, texts)))


def _title_width(figure: Figure, ax: Axes) -> dict[Text, float]:
    """Pixels that its title may take, up to the page's edges and its neighbours."""
    title: Text = ax.title if ax.title.get_text() else ax._left_title  # type: ignore[attr-defined]
    if not title.get_text():
        return {}
    box = title.get_window_extent()
    low, high = figure.bbox.x0 + _EDGE, figure.bbox.x1 - _EDGE
    # Titles of a row are above their axes; a bar of colours reaches as high as a title.
    bottom, top = ax.bbox.y0, box.y1
    for other in _other_axes(figure, ax):
        if other.x0 >= ax.bbox.x1 and other.y0 < top and other.y1 > bottom:
            high = min(high, other.x0 - _EDGE)
    if title.get_horizontalalignment() == "left":
        return {title: high - box.x0}
    middle = (box.x0 + box.x1) / 2
    return {title: 2 * min(middle - low, high - middle)}


def _name_widths(figure: Figure, ax: Axes) -> dict[Text, float]:
    """Pixels that the names of its axes may take, beside those of the panels next to it."""
    widths: dict[Text, float] = {}
    panel = ax.bbox.get_points()
    for text, along in ((ax.xaxis.label, 0), (ax.yaxis.label, 1)):
        if not text.get_text():
            continue
        low, high = figure.bbox.get_points()[:, along] + [_EDGE, -_EDGE]
        first, last = panel[:, along]
        for other in _other_axes(figure, ax) + (_figure_boxes(figure) if along else []):
            corners = other.get_points()
            across, beside = corners[:, 1 - along], panel[:, 1 - along]
            if min(across[1], beside[1]) <= max(across[0], beside[0]):  # nowhere next to it
                continue
            begin, end = corners[:, along]
            if begin >= last:
                high = min(high, (begin + last) / 2 - _EDGE)
            elif end <= first:
                low = max(low, (end + first) / 2 + _EDGE)
        middle = text.get_window_extent().get_points()[:, along].mean()
        widths[text] = float(2 * min(middle - low, high - middle))
    return widths


def _fit_legend(figure: Figure, legend: Legend) -> bool:
    """Shorten the labels of a legend that is wider than the page to one width; whether it was."""
    page, box, texts = figure.bbox, legend.get_window_extent(), legend.get_texts()
    # A legend in the middle of the page sticks out on either side.
    excess = max(page.x0 + _EDGE - box.x0, 0) + max(box.x1 - page.x1 + _EDGE, 0)
    if excess <= 0:
        return False
    columns = max(int(getattr(legend, "_ncols", 1)), 1)
    width = _label_width([text.get_window_extent().width for text in texts], excess, columns)
    short = distinct([text.get_text() for text in texts], _fits(texts[0], width), _LINES)
    changed = [text.get_text() != new for text, new in zip(texts, short, strict=True)]
    for text, new in zip(texts, short, strict=True):
        text.set_text(new)
    return any(changed)


def _label_width(widths: Sequence[float], excess: float, columns: int) -> float:
    """The width to which labels are cut so that the columns together are ``excess`` narrower."""
    rows = -(-len(widths) // columns)
    widest = np.array([max(widths[i : i + rows]) for i in range(0, len(widths), rows)])
    for width in np.linspace(widest.max(), 0, 200):
        if np.maximum(widest - width, 0).sum() >= excess:
            return float(width)
    return 0.0


def _other_axes(figure: Figure, ax: Axes) -> list[Bbox]:
    """The other axes of the figure, colour bars too."""
    return [other.bbox for other in figure.axes if other is not ax and other.get_visible()]


def _set(text: Text, original: str, pixels: float) -> bool:
    """Show as much of the ``original`` as fits; whether that changes the text."""
    before, fits = text.get_text(), _fits(text, pixels)
    lines = original.split("\n")
    after = "\n".join(line if fits(line) else fitted(line, fits, _LINES) for line in lines)
    text.set_text(after)
    return after != before


def _fits(text: Text, pixels: float) -> Fits:
    """Whether a line is at most so long, written as ``text`` is."""
    whole = text.get_text()

    def fits(line: str) -> bool:
        text.set_text(line)
        box = text.get_window_extent()
        text.set_text(whole)
        return bool((box.height if _is_upright(text) else box.width) <= pixels)

    return fits


def _is_upright(text: Text) -> bool:
    return abs(text.get_rotation() - 90) < 1


def _figure_boxes(figure: Figure) -> list[Bbox]:
    """The texts above or below all panels."""
    level = [text for text in _figure_texts(figure) if not text.get_rotation()]
    return [artist.get_window_extent() for artist in (*level, *figure.legends)]


def _figure_texts(figure: Figure) -> Iterable[Text]:
    """The names that the whole figure has."""
    for name in ("_supxlabel", "_supylabel", "_suptitle"):
        text: Text | None = getattr(figure, name)
        if text is not None and text.get_text():
            yield text
