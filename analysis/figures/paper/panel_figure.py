"""A figure of panels of lines over batch sizes, drawn from its ``PanelFigure`` alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, ground, ink, tint
from analysis.figures.drawing.facets import styles_of
from analysis.figures.drawing.optimizer_styles import CurveStyle
from analysis.figures.drawing.page import Page, name_once
from analysis.figures.drawing.style import PERFECT_DASHES, grid, log2_axis, log10_axis, size_axis
from analysis.figures.drawing.text_fit import fitted, no_snake_case, within
from analysis.figures.paper.panels import Line, Panel, PanelFigure, tabulate

_WIDTH, _HEIGHT = 1.6, 1.5
"""Inches of a panel: the width that it needs, and its height."""
_SHARED = 6
"""Lines up to which one legend for all panels is read easily."""

Styles = dict[str, CurveStyle]


def figure(
    content: Callable[[FigureData], PanelFigure],
) -> tuple[Callable[..., Axes], Callable[..., pd.DataFrame]]:
    """``draw`` and ``numbers`` of a figure that ``content`` says all of."""

    def draw(data: FigureData, *, page: Page) -> Axes:
        return draw_panels(data.computed(content), page)

    def numbers(data: FigureData) -> pd.DataFrame:
        return tabulate(data.computed(content))

    return draw, numbers


def draw_panels(content: PanelFigure, page: Page) -> Axes:
    """The panels on a page; the first one's axes.

    Raises:
        ResultsError: several panels, and one pair of axes to draw them on.
    """
    panels = sorted(content.panels, key=lambda panel: panel.row)
    rows = [panel.row for panel in panels]
    blocks = [rows.count(row) for row in dict.fromkeys(rows)]
    (axes,) = page.panels(blocks, "panel", _WIDTH, _HEIGHT, across=_across(blocks))
    shared = _shared_labels(panels)
    common = styles_of(shared or ())
    units, measures = {panel.unit for panel in panels}, {panel.measure for panel in panels}
    letters = list(ascii_lowercase) + [a + b for a in ascii_lowercase for b in ascii_lowercase]
    drawn: list[tuple[Panel, Styles]] = []
    for ax, panel, letter in zip(axes, panels, letters, strict=False):
        styles = _styles(panel, common or styles_of(line.label for line in panel.measured))
        drawn.append((panel, styles))
        size_axis(ax, [dot.batch_size for x in panel.lines for dot in x.dots], page.panel, 1.6)
        peers = [p for p in panels if p.row == panel.row and p.measure == panel.measure]
        _draw_panel(ax, panel, styles, [panel] if panel.counted else peers)
        title = f"({letter}) {panel.title}" if len(panels) > 1 else panel.title
        page.title(ax, "\n".join(filter(None, (title, panel.note))), color=ink())
        if len(measures) > 1:
            ax.set_ylabel(fitted(no_snake_case(panel.measure), within(_HEIGHT), 2))
        if shared is None and len(panel.lines) > 1:
            page.legend_beneath(ax, list(_line_entries([drawn[-1]]).values()))
    unit = units.pop() if len(units) == 1 else "examples"
    size_name = "\n".join(filter(None, (f"batch size ({unit})", content.footnote)))
    page.name_axes(axes, size_name, measures.pop() if len(measures) == 1 else "")
    if page.ax is None:
        name_once(axes)
    lines = {} if shared is None else _line_entries(drawn, published=not shared)
    page.legend(axes, [*lines.values(), *_mark_entries(panels)])
    return axes[0]


def _across(blocks: Sequence[int]) -> int:
    """Panels in a row: as the rows mean, else three or what leaves no place empty."""
    if len(blocks) > 1:
        return max(blocks)
    (count,) = blocks
    return count if count <= 3 else 2 if count == 4 else 4 if count % 4 == 0 and count % 3 else 3


def _shared_labels(panels: Sequence[Panel]) -> list[str] | None:
    """The labels of all panels where one legend can hold them (none, where each panel has one
    line); None where each panel has a legend of its own."""
    order = list(dict.fromkeys(line.label for panel in panels for line in panel.measured))
    most = max(len(panel.measured) for panel in panels)
    if most == 1:
        return []
    counts = [sum(label in (x.label for x in panel.lines) for panel in panels) for label in order]
    several = len(panels) > 1 and (max(counts) == 1 or len(order) > max(_SHARED, most))
    return None if several else order


def _styles(panel: Panel, named: Styles) -> Styles:
    """Of each line, without dashes; published ones are grey and have the marker of the line that
    they are compared with."""
    styles = {}
    for line in panel.lines:
        name = line.label if line.source is None else line.beside or ""
        style = named.get(name) or next(iter(named.values()))
        colour = style.colour if line.source is None else faint()
        styles[line.label] = CurveStyle(colour, style.marker, "-")
    return styles


def _draw_panel(ax: Axes, panel: Panel, styles: Styles, peers: Sequence[Panel]) -> None:
    """``peers``: the panels with which it shares the range of its vertical axis."""
    top = _set_limits(ax, panel, [line for peer in peers for line in peer.lines])
    grid(ax)
    sizes = [dot.batch_size for line in panel.lines for dot in line.dots]
    ends = np.array([min(sizes), max(sizes)], dtype=float)
    for rule in panel.rules:
        ax.plot(ends, rule.level * ends**rule.power, color=ink(), linewidth=0.8, zorder=2,
                linestyle=rule.dashes)  # fmt: skip
    single = panel.shared_perfect or len(panel.measured) == 1
    for place, line in enumerate(panel.lines):
        style = styles[line.label]
        _draw_line(ax, line, style)
        if line.perfect is not None and not line.source and not (panel.shared_perfect and place):
            _draw_perfect(ax, line, style, single=single)
        for dot in line.dots:
            if not dot.reached:  # beside each other
                marks.not_reached(ax, dot.batch_size * 2.0 ** (0.25 * place), top, style)


def _set_limits(ax: Axes, panel: Panel, lines: Sequence[Line]) -> float:
    """Set the vertical limits; where marks of targets that were not reached stand."""
    values = [x for line in lines for x in line.values().values()]
    values += [x for line in lines for dot in line.dots if dot.bar for x in dot.bar]
    finite = [x for x in values if np.isfinite(x) and (x > 0 or not panel.counted)] or [1.0]
    low, high = min(finite), max(finite)
    if panel.counted and not panel.decimal:
        lost = any(not dot.reached for line in panel.lines for dot in line.dots)
        ax.set_yscale("log", base=2)
        ax.set_ylim(low / 1.6, high * (3.6 if lost else 1.6))
        log2_axis(ax.yaxis, low / 1.6, high * 1.3, most=6)
    elif low > 0 and high / low > 4:
        ax.set_yscale("log")
        ax.set_ylim(low / 1.25, high * 1.25)
        log10_axis(ax.yaxis, low / 1.25, high * 1.25)
    else:
        margin = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
        ax.set_ylim(low - margin, high + margin)
        ax.yaxis.set_major_locator(MaxNLocator(5))
    return high * 2.0


def _marker(line: Line, style: CurveStyle) -> dict[str, Any]:
    """The marker of a line's points: hollow where others published them."""
    if line.source is None:
        return {"markeredgecolor": ground(), "markeredgewidth": 0.4}
    return {"markersize": 3.6, "markerfacecolor": ground(), "markeredgecolor": style.colour,
            "markeredgewidth": 0.7}  # fmt: skip


def _draw_line(ax: Axes, line: Line, style: CurveStyle) -> None:
    """Dots and their bars, joined between neighbours that both have a value."""
    order = 3 if line.source else 4
    values = [np.nan if dot.value is None else dot.value for dot in line.dots]
    ax.plot([dot.batch_size for dot in line.dots], values, color=style.colour, linewidth=0.9,
            zorder=order)  # fmt: skip
    known = [dot for dot in line.dots if dot.value is not None]
    barred = [(dot.batch_size, (dot.value, *dot.bar)) for dot in known if dot.value and dot.bar]
    if barred:
        marks.error_bars(ax, [size for size, _ in barred], [bar for _, bar in barred], style.colour)
    for dot in known:
        marks.dots(ax, [dot.batch_size], [dot.value], style, zorder=order + 1,
                   **_marker(line, style))  # fmt: skip
        marks.ring(ax, dot.batch_size, dot.value or 0.0, dot.edges)


def _draw_perfect(ax: Axes, line: Line, style: CurveStyle, *, single: bool) -> None:
    """Down to the foot of the panel; of several, somewhat under the line that it belongs to."""
    assert line.perfect is not None
    sizes, (low, _) = [dot.batch_size for dot in line.dots], ax.get_ylim()
    least = low if single else max(low, 0.55 * min(line.values().values(), default=low))
    ends = np.array([min(sizes), min(max(sizes) * 1.6, line.perfect / least)])
    ax.plot(ends, line.perfect / ends, linestyle=PERFECT_DASHES, linewidth=0.8, zorder=2,
            color=ink() if single else tint(style.colour, 0.6))  # fmt: skip


def _line_entries(
    parts: Sequence[tuple[Panel, Styles]], *, published: bool = False
) -> dict[str, Artist]:
    """Legend entries of lines by label; with ``published`` of published ones alone."""
    return {
        line.label: marks.entry(
            line.label, linestyle="-", linewidth=0.9, marker=styles[line.label].marker,
            color=styles[line.label].colour, **_marker(line, styles[line.label]),
        )
        for panel, styles in parts
        for line in panel.lines
        if line.source is not None or not published
    }  # fmt: skip


def _mark_entries(panels: Sequence[Panel]) -> list[Artist]:
    """Legend entries of perfect scaling, and of marks."""
    lines = [line for panel in panels for line in panel.lines]
    dots = [dot for line in lines for dot in line.dots]
    dashes = {rule.name: rule.dashes for panel in panels for rule in panel.rules}
    if any(line.perfect is not None and line.source is None for line in lines):
        dashes = {"perfect scaling": PERFECT_DASHES, **dashes}
    return [
        *(marks.entry(n, color=ink(), linewidth=0.8, linestyle=d) for n, d in dashes.items()),
        *([] if all(dot.reached for dot in dots) else [marks.not_reached_entry()]),
        *marks.open_above(dot.why_open for dot in dots),
        *marks.rings(edge for dot in dots for edge in dot.edges),
    ]
