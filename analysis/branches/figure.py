"""The local critical batch size over the examples that a run has seen, with the ramp proposed."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis.branches.critical import Branches, Point
from analysis.figure_data import FigureData
from analysis.figures import FigureKind
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, ink
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import curve_style, grid, log2_axis, log10_axis
from analysis.formatting import units

_WIDTH, _HEIGHT = 2.6, 2.2
"""Inches of the panel."""
_MARGIN = 1.4


def kind(branches: Branches) -> FigureKind:
    """The figure of ``branches``."""

    def draw(data: FigureData, *, page: Page) -> Axes:
        del data
        return _draw(branches, page)

    def numbers(data: FigureData) -> pd.DataFrame:
        del data
        return pd.DataFrame([_row(branches, point) for point in branches.last])

    return FigureKind(name="branch", draw=draw, numbers=numbers)


def _draw(branches: Branches, page: Page) -> Axes:
    """Of each step the interval by the longest window: a bar from the largest batch size that is
    surely within the tolerance to the smallest surely above, a caret where that end is open. The
    line is the batch size of the ramp."""
    ((ax,),) = page.panels([1], "run", _WIDTH, _HEIGHT)
    grid(ax)
    style, size = curve_style(0), branches.batch_size
    points = branches.last
    tested = [size, *(each.times * size for point in points for each in point.comparisons)]
    seen = [point.step * size for point in points]
    ends = min(tested) / _MARGIN, max(tested) * _MARGIN
    for x, point in zip(seen, points, strict=True):
        critical = point.critical
        low, high = critical.low or min(tested), critical.high or max(tested)
        if not critical.is_open:
            ax.plot([x, x], [low, high], color=style.colour, linewidth=1.1, zorder=3)
        for end, at, marker in ((critical.low, low, "v"), (critical.high, high, "^")):
            if end is None:
                ax.plot([x], [at], marker=marker, markerfacecolor="none", zorder=4,
                        markeredgecolor=style.colour, linestyle="none")  # fmt: skip
        if critical.value is not None:
            marks.dots(ax, [x], [critical.value], style)
    steps = [(0, 1), *branches.ramp()]
    ramp_at = [step * size for step, _ in steps] + [max(seen) * _MARGIN]
    sizes = [times * size for _, times in steps]
    ax.step(ramp_at, [*sizes, sizes[-1]], where="post", color=ink(), linewidth=0.9, zorder=2)
    ax.set_xscale("log")
    ax.set_xlim(min(seen) / _MARGIN, max(seen) * _MARGIN)
    log10_axis(ax.xaxis, *ax.get_xlim())
    ax.set_yscale("log", base=2)
    ax.set_ylim(*ends)
    log2_axis(ax.yaxis, *ends)
    unit = units([str(branches.about.get("example_unit", "example"))])
    ax.set_xlabel(f"{unit} seen")
    ax.set_ylabel(f"batch size ({unit})")
    page.legend([ax], _handles(style, points))
    return ax


def _handles(style: Any, points: list[Point]) -> list[Artist]:
    name = "local critical batch size, 90 % interval"
    handles: list[Artist] = [marks.entry(name, marker=style.marker, color=style.colour)]
    if any(not point.critical.reached for point in points):
        handles.append(marks.entry("open end", marker="^", markerfacecolor="none", color=faint()))
    return [*handles, marks.entry("ramp", color=ink(), linewidth=0.9)]


def _row(branches: Branches, point: Point) -> dict[str, Any]:
    times = [k for step, k in branches.ramp() if step <= point.step]
    return {
        "step": point.step,
        "examples": point.step * branches.batch_size,
        "window_steps": point.window,
        **point.critical.columns("critical_batch_size"),
        "ramp": (times or [1])[-1] * branches.batch_size,
    }
