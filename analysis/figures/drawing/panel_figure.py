"""A figure of panels of lines over batch sizes: rows and columns that fit, titles and legends."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator

from analysis.figures.drawing import error_bars, marks
from analysis.figures.drawing.colours import faint, ground, ink, tint
from analysis.figures.drawing.legends import COMPACT, entry, place_legends
from analysis.figures.drawing.optimizer_styles import style_numbers
from analysis.figures.drawing.page import (
    COLUMN,
    TWO_COLUMNS,
    Page,
    scaled,
    stroke,
    unit,
)
from analysis.figures.drawing.panels import Line, Panel
from analysis.figures.drawing.style import (
    CurveStyle,
    curve_style,
    decimal_axis,
    figure_of,
    given_axes,
    grid,
    log2_axis,
    plain,
)
from analysis.figures.drawing.text_fit import fitted, within

_PERFECT = (0, (4, 2.5))
_PANEL, _LEAST = 1.62, 1.6
"""Inches of a panel: its height without title and numbers, and the width that it needs."""
_AXIS = 0.45
"""Inches of the numbers beside a panel."""
_NUMBERS, _LINE = 0.26, 0.125
"""Inches of the numbers under a panel, and of a line of its title."""
_TITLE, _NOTE, _LEGEND, _FOOTNOTE = 7.5, 6.0, 6.5, 6
"""Points of type."""
_TITLE_LINES = 3
_TITLE_WIDTH = 0.9
"""The part of a panel's width that is free at every position in a row."""
_LETTER, _AXIS_LETTER = 0.044, 0.064
"""Inches of a letter of the footnote and of an axis' name, about."""
_SHARED = 6
"""Lines up to which one legend for all panels is read easily."""

Title = tuple[list[str], list[str]]
"""The lines of a panel's title, and of the note under it."""


def draw_panels(
    panels: Sequence[Panel], *, page: Page, ax: Axes | None = None, footnote: str = ""
) -> Axes:
    """The panels on a new figure, or the only one on ``ax``; the first one's axes.

    Raises:
        ResultsError: several panels, and one pair of axes to draw them on.
    """
    given = ax is not None
    columns = 1 if given else columns_of(panels, page)
    width = page.usable(_need(columns)) / columns - _AXIS
    shared = _shared_labels(panels)
    styles = [_styles(panel, shared) for panel in panels]
    titles = _titles(panels, width)
    units = {panel.unit for panel in panels}
    size_name = f"batch size ({units.pop() if len(units) == 1 else 'examples'})"
    if len(size_name) * _AXIS_LETTER > width:
        size_name = size_name.replace(" (", "\n(")
    space = _NUMBERS + _LINE * sum(
        max(len(part) for part in parts) for parts in zip(*titles, strict=True)
    )
    axes = (
        _new_axes(panels, columns, page, space, 0.12 * ("\n" in size_name))
        if ax is None
        else given_axes(ax, len(panels), "panel")
    )
    for at, panel, panel_styles in zip(axes, panels, styles, strict=True):
        _draw_panel(at, panel, panel_styles, _lines_of_axis(panel, panels), width)
        at.set_xlabel(size_name)
    note_lines = max(len(note) for _, note in titles)
    notes = [_set_title(at, text, note_lines) for at, text in zip(axes, titles, strict=True)]
    parts = list(zip(panels, styles, strict=True))
    if not given:
        if len(panels) > 1:
            _add_legend(axes[0], _handles(parts, shared))
        _add_footnote(axes[0], footnote)
        _remove_repeated_names(axes)
    lifts = place_legends(axes, [_panel_handles(part, shared, len(panels)) for part in parts],
                          given=given)  # fmt: skip
    for at, text, note, lift in zip(axes, titles, notes, lifts, strict=True):
        if lift:
            if note is not None:
                note.remove()
            _set_title(at, text, note_lines, lift)
    return axes[0]


def columns_of(panels: Sequence[Panel], page: Page) -> int:
    """Panels in a row: as the rows mean, else three or what leaves no place empty; never more
    than the page is wide enough for."""
    count = len(panels)
    most = max(1, int(page.usable(_need(count)) / _LEAST))
    rows = [panel.row for panel in panels]
    if len(set(rows)) > 1:
        return min(most, max(rows.count(row) for row in rows))
    if count <= 3:
        return min(most, count)
    return min(most, 2 if count == 4 else 4 if count % 4 == 0 and count % 3 else 3)


def _need(columns: int) -> float:
    """Inches that so many panels in a row need."""
    return COLUMN if columns == 1 else TWO_COLUMNS


def _new_axes(
    panels: Sequence[Panel], columns: int, page: Page, above: float, beneath: float
) -> list[Axes]:
    """Axes of a new figure; each ``Panel.row`` begins a row."""
    places: dict[int, tuple[int, int]] = {}
    row, column, before = 0, 0, None
    for i in sorted(range(len(panels)), key=lambda i: panels[i].row):
        if column == columns or before not in (None, panels[i].row):
            row, column = row + 1, 0
        places[i] = row, column
        column, before = column + 1, panels[i].row
    height = _PANEL * (1.2 if columns < 3 else 1.0)
    figure = plt.figure(
        figsize=page.size(_need(columns), (height + above) * (row + 1) + 0.3 + beneath),
        layout="constrained",
    )
    spec = figure.add_gridspec(row + 1, columns)
    axes = [figure.add_subplot(spec[places[i]]) for i in range(len(panels))]
    figure.set_layout_engine("constrained", hspace=0.04, wspace=0.03)
    return axes


def _lines_of_axis(panel: Panel, panels: Sequence[Panel]) -> list[Line]:
    """The lines that share the vertical axis: a metric is read across a row."""
    if panel.counted:
        return list(panel.lines)
    row = [other for other in panels if other.row == panel.row and other.measure == panel.measure]
    return [line for other in row for line in other.lines]


def _draw_panel(
    ax: Axes, panel: Panel, styles: Sequence[CurveStyle], peers: Sequence[Line], width: float
) -> None:
    sizes = [dot.batch_size for line in panel.lines for dot in line.dots]
    ax.set_xscale("log", base=2)
    ax.set_xlim(min(sizes) / 1.6, max(sizes) * 1.6)
    # As many numbers as fit beside each other.
    most = width / (0.075 * len(plain(max(sizes))) + 0.08)
    log2_axis(ax.xaxis, min(sizes), max(sizes), most=max(2, min(7, int(most))))
    top = _limits(ax, panel, peers)
    grid(ax)
    low, _ = ax.get_ylim()
    ends = np.array([min(sizes), max(sizes)], dtype=float)
    for rule in panel.rules:
        ax.plot(ends, rule.level * ends**rule.power, color=ink(), linewidth=stroke(0.8), zorder=2,
                linestyle=rule.dashes)  # fmt: skip
    single = panel.shared_perfect or len(panel.measured) == 1
    for place, (line, style) in enumerate(zip(panel.lines, styles, strict=True)):
        _draw_line(ax, line, style)
        if line.perfect is not None and not line.source and not (panel.shared_perfect and place):
            _draw_perfect(ax, line, style, low, single=single)
        for dot in line.dots:
            if not dot.reached:
                # Lines beside each other.
                marks.not_reached(ax, dot.batch_size * 2.0 ** (0.25 * place), top, style, length=8,
                                  width=0.7, markersize=_marker(line, style)["markersize"],
                                  markeredgewidth=0.8)  # fmt: skip
    ax.set_ylabel(panel.measure)


def _limits(ax: Axes, panel: Panel, peers: Sequence[Line]) -> float:
    """Sets the vertical limits; where marks of targets that were not reached stand."""
    values = [x for line in peers for x in line.values().values()]
    values += [x for line in peers for dot in line.dots if dot.bar for x in dot.bar]
    finite = [x for x in values if np.isfinite(x) and (x > 0 or not panel.counted)] or [1.0]
    low, high = min(finite), max(finite)
    if panel.counted:
        lost = any(not dot.reached for line in panel.lines for dot in line.dots)
        ax.set_yscale("log", base=2)
        ax.set_ylim(low / 1.6, high * (3.6 if lost else 1.6))
        log2_axis(ax.yaxis, low / 1.6, high * 1.3, most=6)
    elif low > 0 and high / low > 4:
        ax.set_yscale("log")
        ax.set_ylim(low / 1.25, high * 1.25)
        decimal_axis(ax.yaxis, low / 1.25, high * 1.25)
    else:
        margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
        ax.set_ylim(low - margin, high + margin)
        ax.yaxis.set_major_locator(MaxNLocator(5))
    return high * 2.0


def _marker(line: Line, style: CurveStyle) -> dict[str, Any]:
    """The marker of a line's points: hollow where others published them."""
    hollow = line.source is not None
    return {
        "marker": style.marker,
        "color": style.colour,
        "markersize": 3.6 if hollow else 4.4,
        "markerfacecolor": ground() if hollow else style.colour,
        "markeredgecolor": style.colour if hollow else ground(),
        "markeredgewidth": 0.7 if hollow else 0.4,
    }


def _draw_line(ax: Axes, line: Line, style: CurveStyle) -> None:
    """Dots and their bars, joined between neighbours that both have a value."""
    order = 3 if line.source else 4
    values = np.array([np.nan if dot.value is None else dot.value for dot in line.dots])
    ax.plot([dot.batch_size for dot in line.dots], values, color=style.colour,
            linewidth=stroke(0.9), zorder=order)  # fmt: skip
    for dot in line.dots:
        if dot.value is None:
            continue
        if dot.bar is not None:
            error_bars.draw(ax, [dot.batch_size], [(dot.value, *dot.bar)], style.colour)
        ax.plot([dot.batch_size], [dot.value], zorder=order + 1, **scaled(_marker(line, style)))
        marks.ring(ax, dot.batch_size, dot.value, dot.edges)


def _draw_perfect(ax: Axes, line: Line, style: CurveStyle, low: float, *, single: bool) -> None:
    """Down to the foot of the panel; of several, somewhat under the line that it belongs to."""
    assert line.perfect is not None
    sizes = [dot.batch_size for dot in line.dots]
    least = low if single else max(low, 0.55 * min(line.values().values(), default=low))
    end = min(max(sizes) * 1.6, line.perfect / least)
    ax.plot([min(sizes), end], [line.perfect / min(sizes), line.perfect / end], linestyle=_PERFECT,
            color=ink() if single else tint(style.colour, 0.6),
            linewidth=stroke(0.8 if single else 0.7), zorder=2)  # fmt: skip


def _styles(panel: Panel, shared: Sequence[str] | None) -> list[CurveStyle]:
    """Of each line, without dashes; grey for published ones."""
    labels = [line.label for line in panel.measured]
    numbers = style_numbers(shared or labels)
    styles = []
    for i, line in enumerate(panel.lines):
        name = line.label if line.source is None else line.beside or ""
        style = curve_style(numbers.get(name, i))
        colour = style.colour if line.source is None else faint()
        styles.append(CurveStyle(colour, style.marker, "-"))
    return styles


Part = tuple[Panel, Sequence[CurveStyle]]


def _shared_labels(panels: Sequence[Panel]) -> list[str] | None:
    """The labels of all panels where one legend can hold them (none, where each panel has one
    line); None where each panel has a legend of its own."""
    if len(panels) == 1:
        return None
    order = list(dict.fromkeys(line.label for panel in panels for line in panel.measured))
    most = max(len(panel.measured) for panel in panels)
    if most == 1:
        return []
    counts = [sum(label in (x.label for x in panel.lines) for panel in panels) for label in order]
    return order if len(order) <= max(_SHARED, most) and max(counts) > 1 else None


def _line_handles(parts: Sequence[Part], *, published: bool = False) -> dict[str, Artist]:
    """Legend entries of lines by label; with ``published`` of published ones alone."""
    handles: dict[str, Artist] = {}
    for panel, styles in parts:
        for line, style in zip(panel.lines, styles, strict=True):
            if line.label not in handles and (line.source is not None or not published):
                options = {"linestyle": "-", "linewidth": 0.9, **_marker(line, style)}
                handles[line.label] = entry(line.label, **options)
    return handles


def _handles(parts: Sequence[Part], shared: Sequence[str] | None = ("",)) -> list[Artist]:
    """Legend entries of lines (unless ``shared`` is None), of perfect scaling, and of marks."""
    handles = {} if shared is None else _line_handles(parts, published=not shared)
    lines = [line for panel, _ in parts for line in panel.lines]
    dots = [dot for line in lines for dot in line.dots]
    rules = {rule.name: rule.dashes for panel, _ in parts for rule in panel.rules}
    perfect = any(line.perfect is not None and line.source is None for line in lines)

    def dashed(name: str, dashes: Any) -> Artist:
        return entry(name, color=ink(), linewidth=0.8, linestyle=dashes)

    return [
        *handles.values(),
        *([dashed("perfect scaling", _PERFECT)] if perfect else []),
        *([] if all(dot.reached for dot in dots) else [marks.not_reached_entry(5.5)]),
        *marks.open_above(dot.why_open for dot in dots),
        *(dashed(name, dashes) for name, dashes in rules.items()),
        *marks.rings(edge for dot in dots for edge in dot.edges),
    ]


def _panel_handles(part: Part, shared: Sequence[str] | None, count: int) -> list[Artist]:
    """The entries of a panel's own legend: all where it is alone, else what the shared one has
    not."""
    several = len(part[0].lines) > 1
    if count == 1:
        return _handles([part], ("",) if several else None)
    return list(_line_handles([part]).values()) if shared is None and several else []


def _add_legend(ax: Axes, handles: Sequence[Artist]) -> None:
    """The legend of all panels, beneath them."""
    if not handles:
        return
    figure = figure_of(ax)
    width, height = figure.get_size_inches()
    rows = -(-len(handles) // (5 if width > 1.2 * COLUMN * unit() else 2))
    figure.legend(
        handles=list(handles), loc="outside lower center", ncols=-(-len(handles) // rows),
        fontsize=_LEGEND * unit(), columnspacing=1.4, **COMPACT,
    )  # fmt: skip
    figure.set_size_inches(width, height + 0.16 * rows * unit())


def _add_footnote(ax: Axes, text: str) -> None:
    if text:
        figure = figure_of(ax)
        letters = int(figure.get_size_inches()[0] / unit() / _LETTER)
        lines = "\n".join(wrap(text, letters))
        figure.supxlabel(lines, fontsize=_FOOTNOTE * unit(), color=faint(), x=0.01, ha="left")


def _remove_repeated_names(axes: Sequence[Axes]) -> None:
    """Names of axes once in a row, where they are the same, and once in a column."""
    specs = [ax.get_subplotspec() for ax in axes]
    places = [(spec.rowspan.start, spec.colspan.start) for spec in specs if spec is not None]
    names = [ax.get_ylabel() for ax in axes]
    for ax, (row, column), name in zip(axes, places, names, strict=True):
        left = [n for n, (r, c) in zip(names, places, strict=True) if r == row and c < column]
        if left and left[-1] == name:
            ax.set_ylabel("")
        if any(r > row and c == column for r, c in places):
            ax.set_xlabel("")


def _titles(panels: Sequence[Panel], width: float) -> list[Title]:
    """The lines of each panel's title, after its letter, and of its note."""
    several = len(panels) > 1
    texts = [f"({_letter(i)}) " * several + panel.title for i, panel in enumerate(panels)]
    inches = _TITLE_WIDTH * width * unit()
    fits_title, fits_note = within(inches, _TITLE * unit()), within(inches, _NOTE * unit())
    return [
        (
            fitted(text, fits_title, lines=_TITLE_LINES).split("\n"),
            fitted(panel.note, fits_note, lines=_TITLE_LINES).split("\n") if panel.note else [],
        )
        for text, panel in zip(texts, panels, strict=True)
    ]


def _letter(i: int) -> str:
    count = len(ascii_lowercase)
    return (ascii_lowercase[i // count - 1] if i >= count else "") + ascii_lowercase[i % count]


def _set_title(ax: Axes, title: Title, note_lines: int, lift: float = 0.0) -> Annotation | None:
    """The title and, under it, the note, ``lift`` points above their usual place."""
    lines, note = title
    pad = (4 + 8 * note_lines + (3 if note_lines else 0)) * unit() + lift
    ax.set_title("\n".join(lines), color=ink(), fontsize=_TITLE * unit(), pad=pad)
    # Notes are aligned below the title, so that their first lines are level.
    if not note:
        return None
    return ax.annotate(
        "\n".join(note), (0, 1), xytext=(0, pad - 3.5 * unit()), xycoords="axes fraction",
        va="top", textcoords="offset points", fontsize=_NOTE * unit(), color=faint(),
        annotation_clip=False,
    )  # fmt: skip
