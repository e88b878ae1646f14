"""What tells the lines of a figure apart: one legend for all panels, or one each.

A panel's own stands within its axes where it covers nothing there, else between them and the title.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from analysis.figures.drawing import legend_place, marks
from analysis.figures.drawing.colours import faint, ground, ink
from analysis.figures.drawing.page import mark as size
from analysis.figures.drawing.page import stroke, unit
from analysis.figures.drawing.style import Look
from analysis.figures.paper.panel import Line, Panel

DASHES = (0, (4, 2.5))
"""Of perfect scaling."""
_SHARED = 6
"""Lines up to which one legend for all panels is read easily."""

TIGHT: dict[str, Any] = {"handletextpad": 0.5, "labelspacing": 0.3, "borderpad": 0.2}


def mark(line: Line, one: Look) -> dict[str, Any]:
    """How a line's points look: hollow where others published them."""
    hollow = line.source is not None
    return {
        "marker": one.marker,
        "color": one.colour,
        "markersize": size(3.6 if hollow else 4.4),
        "markerfacecolor": ground() if hollow else one.colour,
        "markeredgecolor": one.colour if hollow else ground(),
        "markeredgewidth": stroke(0.7 if hollow else 0.4),
    }


def shared_labels(panels: Sequence[Panel]) -> list[str] | None:
    """The labels of all panels where one legend can hold them; else each has its own."""
    if len(panels) == 1:
        return None
    order = list(dict.fromkeys(one.label for p in panels for one in p.lines if not one.source))
    most = max(len([one for one in p.lines if not one.source]) for p in panels)
    if most == 1:
        # A panel a line: nothing has to be told apart.
        return []
    places = [sum(label in (x.label for x in p.lines) for p in panels) for label in order]
    return order if len(order) <= max(_SHARED, most) and max(places) > 1 else None


def of_lines(parts: Sequence[tuple[Panel, Sequence[Look]]], *, plain: bool = False) -> list[Artist]:
    """Legend handles of lines, each text once; with ``plain`` of published ones alone."""
    handles: dict[str, Artist] = {}
    for panel, looks in parts:
        for line, one in zip(panel.lines, looks, strict=True):
            if line.source is not None or not plain:
                handle = Line2D([], [], linewidth=stroke(0.9), label=line.label, **mark(line, one))
                handles.setdefault(line.label, handle)
    return list(handles.values())


def handles_of(
    parts: Sequence[tuple[Panel, Sequence[Look]]], shared: Sequence[str] | None = ("",)
) -> list[Artist]:
    """Legend handles of lines (where one legend has them), of perfect scaling, and of marks."""
    handles: dict[str, Artist] = {}
    if shared is not None:
        found = of_lines(parts, plain=not shared)
        handles = {str(handle.get_label()): handle for handle in found}
    lines = [line for panel, _ in parts for line in panel.lines]
    if any(line.perfect is not None and line.source is None for line in lines):
        handles["perfect scaling"] = Line2D(
            [], [], color=ink(), linewidth=stroke(0.8), linestyle=DASHES, label="perfect scaling"
        )
    if any(not dot.reached for line in lines for dot in line.dots):
        handles["target not reached"] = Line2D(
            [],
            [],
            color=faint(),
            linestyle="none",
            marker="$\\uparrow$",
            markersize=size(5.5),
            markeredgewidth=stroke(0.3),
            label="target not reached",
        )
    for opened in marks.open_above(dot.why_open for line in lines for dot in line.dots):
        handles[str(opened.get_label())] = opened
    for rule in (rule for panel, _ in parts for rule in panel.rules):
        handles.setdefault(
            rule.name,
            Line2D(
                [], [], color=ink(), linewidth=stroke(0.8), linestyle=rule.dashes, label=rule.name
            ),
        )
    rings = marks.rings([edge for line in lines for dot in line.dots for edge in dot.edges])
    return [*handles.values(), *rings]


def settle(
    axes: Sequence[Axes], handles: Sequence[Sequence[Artist]], *, given: bool
) -> list[float]:
    """A legend in each panel that has handles, or over each of them where one has no room; points
    by which each title is to be raised for it, the same in a row.

    On axes that are ``given`` one that has room is placed when they are drawn, which may be after
    they are laid out.
    """
    figure = axes[0].get_figure(root=True)
    assert isinstance(figure, Figure)
    told = [(one, some) for one, some in zip(axes, handles, strict=True) if some]
    if not told:
        return [0.0] * len(axes)
    if not given:
        figure.draw_without_rendering()  # lays out: what is free must be known
    places = [legend_place.place(_legend(one, some, loc="upper right")) for one, some in told]
    if None not in places:
        for (one, some), where in zip(told, places, strict=True):
            _legend(one, some, loc="best" if given or where is None else where)
        return [0.0] * len(axes)
    columns = min(_columns(one, some) for one, some in told)
    heights = dict.fromkeys(map(_row, axes), 0.0)
    for one, some in told:
        tall = _above(one, some, columns).get_window_extent().height * 72 / figure.dpi
        heights[_row(one)] = max(heights[_row(one)], tall)
    if not given:
        across, height = figure.get_size_inches()
        figure.set_size_inches(across, height + sum(heights.values()) / 72)
    return [heights[_row(one)] for one in axes]


def _row(ax: Axes) -> int:
    spec = ax.get_subplotspec()
    return 0 if spec is None else int(spec.rowspan.start)


def _legend(ax: Axes, handles: Sequence[Artist], **more: Any) -> Legend:
    return ax.legend(handles=list(handles), fontsize=6 * unit(), **{**TIGHT, **more})


def _above(ax: Axes, handles: Sequence[Artist], columns: int) -> Legend:
    """Right over the axes."""
    return _legend(
        ax, handles, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, ncols=columns,
        columnspacing=1.2,
    )  # fmt: skip


def _columns(ax: Axes, handles: Sequence[Artist]) -> int:
    """As many as are no wider than the axes, and no more than fill the rows."""
    for rows in range(1, len(handles)):
        columns = -(-len(handles) // rows)
        if _above(ax, handles, columns).get_window_extent().width <= ax.bbox.width:
            return columns
    return 1
