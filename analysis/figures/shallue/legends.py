"""What tells the lines of a figure apart: one legend for all panels, or one each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.lines import Line2D

from analysis.figures import marks
from analysis.figures.page import mark as size
from analysis.figures.page import stroke
from analysis.figures.shallue.panel import Line, Panel
from analysis.figures.style import FAINT, INK, Look

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
        "markerfacecolor": "white" if hollow else one.colour,
        "markeredgecolor": one.colour if hollow else "white",
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
            [], [], color=INK, linewidth=stroke(0.8), linestyle=DASHES, label="perfect scaling"
        )
    if any(not dot.reached for line in lines for dot in line.dots):
        handles["target not reached"] = Line2D(
            [],
            [],
            color=FAINT,
            linestyle="none",
            marker="$\\uparrow$",
            markersize=size(5.5),
            markeredgewidth=stroke(0.3),
            label="target not reached",
        )
    for rule in (rule for panel, _ in parts for rule in panel.rules):
        handles.setdefault(
            rule.name,
            Line2D(
                [], [], color=INK, linewidth=stroke(0.8), linestyle=rule.dashes, label=rule.name
            ),
        )
    rings = marks.rings([edge for line in lines for dot in line.dots for edge in dot.edges])
    return [*handles.values(), *rings]
