"""Time to target against the number of devices, and cost against time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis.figure_data import FigureData
from analysis.figures import FigureKind
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint
from analysis.figures.drawing.facets import styles_of
from analysis.figures.drawing.optimizer_styles import CurveStyle
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import grid, log10_axis, number, size_axis
from analysis.fit.interval import Interval
from analysis.formatting import time_unit
from analysis.machines.plan import Choice, Plan, alike, time_of

_WIDTH, _HEIGHTS = 2.6, (2.0, 2.0)
"""Inches of a panel."""


def kind(plans: Sequence[Plan]) -> FigureKind:
    """The figure of ``plans``."""

    def draw(data: FigureData, *, page: Page) -> Axes:
        del data
        return _draw(plans, page)

    def numbers(data: FigureData) -> pd.DataFrame:
        del data
        return pd.DataFrame([row for plan in plans for row in _rows(plan)])

    return FigureKind(name="plan", draw=draw, numbers=numbers)


def _draw(plans: Sequence[Plan], page: Page) -> Axes:
    """For each workload and target time against devices, above cost against time.

    Bars are intervals; a caret that points down is a bound. Along a line of cost each point is a
    number of devices, named on the frontier.
    """
    panels = alike(plans)
    upper, lower = page.panels([len(panels)], "workload", _WIDTH, *_HEIGHTS)
    styles = styles_of(plan.label for plan in plans)
    priced = any(choice.cost for plan in plans for choice in plan.choices)
    for (name, competing), above, below in zip(panels.items(), upper, lower, strict=True):
        choices = [choice for plan in competing for choice in plan.choices]
        unit, size = time_unit(min(map(time_of, choices)))
        for plan in competing:
            _draw_times(above, plan.choices, size, styles[plan.label])
            _draw_costs(below, plan.choices, size, styles[plan.label], priced=priced)
        _scale(above, below, choices, size, page.panel, priced=priced)
        page.title(above, name.replace(", ", " · "))
        above.set_xlabel("devices")
        above.set_ylabel(f"{unit} to target")
        below.set_xlabel(f"{unit} to target")
        below.set_ylabel("cost" if priced else f"devices × {unit}")
    page.legend(upper, _handles(plans, styles))
    return upper[0]


def _draw_times(ax: Axes, choices: Sequence[Choice], size: float, style: CurveStyle) -> None:
    grid(ax)
    devices = [choice.devices for choice in choices]
    known = [choice for choice in choices if not choice.is_bound]
    bars = [tuple((end or 0.0) / size for end in choice.seconds.ends) for choice in known]
    marks.error_bars(ax, [choice.devices for choice in known], bars, style.colour)  # type: ignore[arg-type]
    times = [time_of(choice) / size for choice in choices]
    ax.plot(devices, times, color=style.colour, linestyle=style.line, zorder=3)
    _dots(ax, devices, times, choices, style)


def _draw_costs(
    ax: Axes, choices: Sequence[Choice], size: float, style: CurveStyle, *, priced: bool
) -> None:
    grid(ax)
    times = [time_of(choice) / size for choice in choices]
    costs = [_cost(choice, size, priced=priced) for choice in choices]
    ax.plot(times, costs, color=style.colour, linestyle=style.line, zorder=3)
    _dots(ax, times, costs, choices, style)
    for choice, time, cost in zip(choices, times, costs, strict=True):
        if choice.frontier:
            ax.annotate(number(choice.devices), (time, cost), (-4, -4), ha="right", va="top",
                        textcoords="offset points", fontsize="x-small", color=faint())  # fmt: skip


def _dots(
    ax: Axes, x: Sequence[float], y: Sequence[float], choices: Sequence[Choice], style: CurveStyle
) -> None:
    for at, choice in enumerate(choices):
        marker: dict[str, Any] = {"marker": "v", "markerfacecolor": "none",
                                  "markeredgecolor": style.colour}  # fmt: skip
        marks.dots(ax, [x[at]], [y[at]], style, **(marker if choice.is_bound else {}))


def _scale(
    above: Axes, below: Axes, choices: Sequence[Choice], size: float, inches: float, *, priced: bool
) -> None:
    times = [time_of(choice) / size for choice in choices]
    costs = [_cost(choice, size, priced=priced) for choice in choices]
    size_axis(above, [choice.devices for choice in choices], inches)
    ends = [end / size for choice in choices for end in choice.seconds.ends if end]
    for axis, values, scale in (
        (above.yaxis, ends, above.set_yscale),
        (below.xaxis, times, below.set_xscale),
        (below.yaxis, costs, below.set_yscale),
    ):
        scale("log")
        log10_axis(axis, min(values) / 1.3, max(values) * 1.3)
    above.set_ylim(min(ends) / 1.2, max(ends) * 1.2)
    below.set_xlim(min(times) / 1.5, max(times) * 1.3)
    below.set_ylim(min(costs) / 1.8, max(costs) * 1.3)


def _cost(choice: Choice, size: float, *, priced: bool) -> float:
    if not priced or choice.cost is None:
        return time_of(choice) / size * choice.devices
    value, _, high = choice.cost.ends
    return float(value if value is not None else high or 0.0)


def _handles(plans: Sequence[Plan], styles: dict[str, CurveStyle]) -> list[Artist]:
    handles: list[Artist] = [marks.curve_entry(name, style) for name, style in styles.items()]
    choices = [choice for plan in plans for choice in plan.choices]
    if not all(choice.is_bound for choice in choices):
        handles.append(marks.entry("90 % interval", marker="|", color=faint(), markersize=6))
    if any(choice.is_bound for choice in choices):
        handles.append(marks.entry("at most", marker="v", markerfacecolor="none", color=faint()))
    return handles


def _rows(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    for choice in plan.choices:
        row = {**plan.group, "target": plan.target, "devices": choice.devices}
        row |= {"batch_size": choice.batch_size, "step_seconds": choice.step_seconds}
        for name in ("steps", "seconds", "cost"):
            row |= (getattr(choice, name) or Interval()).columns(name)
        rows.append({**row, "frontier": choice.frontier})
    return rows
