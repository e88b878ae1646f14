"""The gradient noise scale over training, beside the measured critical batch size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis.curves.curve import names_of
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ink, tint
from analysis.figures.drawing.marks import entry
from analysis.figures.drawing.page import Page, name_once
from analysis.figures.drawing.style import colour_bar, grid, log10_axis, log_colours
from analysis.fit.interval import Interval
from analysis.formatting import units
from analysis.noise.scales import Trajectory, by_curve
from results.counts import count
from results.errors import ResultsError
from results.noise_estimate import NoiseEstimate

MOST = 12
"""Panels of one figure."""
_OPEN = 1e6
"""An open bar ends beyond the frame."""


@dataclass(frozen=True, kw_only=True)
class _Window:
    """A part of the trajectory at one batch size, between two numbers of steps."""

    low: float
    high: float
    noise: NoiseEstimate


@dataclass(frozen=True, kw_only=True)
class _Panel:
    trajectories: Sequence[Trajectory]
    windows: Sequence[Sequence[_Window]]
    """Of each trajectory, the first one in training first."""
    critical: Interval


def draw(data: FigureData, *, page: Page) -> Axes:
    """A panel a curve: for each batch size the noise scale of the trials that came to the target
    first, against the examples that they had seen, in windows that double: those of enough measured
    steps for an interval at 90 %, the bars, or the whole trajectory where there is none.

    A window whose |G|² is not positive is left out. The line across is the critical batch size in
    its interval; a dotted one is a bound, where that is all that is known.
    """
    panels = data.computed(_panels)
    (axes,) = page.panels([len(panels)], "curve", 2.0, 1.9, sharex=True, sharey=True)
    sizes = [trajectory.point.batch_size for panel in panels for trajectory in panel.trajectories]
    colours = log_colours(sizes)
    names = names_of([panel.trajectories[0].curve for panel in panels])
    for ax, panel, name in zip(axes, panels, names, strict=True):
        for trajectory, windows in zip(panel.trajectories, panel.windows, strict=True):
            colour = colours.to_rgba(np.array(trajectory.point.batch_size))
            x = [trajectory.point.batch_size * (each.low + each.high) / 2 for each in windows]
            y = [each.noise.noise_scale for each in windows]
            ax.plot(x, y, color=colour, marker="o", markersize=2.4, linewidth=0.9, zorder=3)
            for at, each in zip(x, windows, strict=True):
                if each.noise.low is not None:
                    high = each.noise.high or _OPEN * each.noise.low
                    ax.vlines(at, each.noise.low, high, color=colour, linewidth=0.7)
        _draw_critical(ax, panel.critical)
        grid(ax)
        page.title(ax, name, color=ink())
    _scale(axes, panels)
    unit = units(panel.trajectories[0].curve.example_unit for panel in panels)
    page.name_axes(axes, unit, "noise scale")
    name_once(axes)
    colour_bar(axes, colours, f"batch size ({unit})")
    page.legend(axes, _handles(panels))
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a window of each batch size of each curve."""
    rows = []
    for panel in data.computed(_panels):
        value, low, high = panel.critical.ends
        critical = {"critical_batch_size": value, "critical_low": low, "critical_high": high}
        for trajectory, windows in zip(panel.trajectories, panel.windows, strict=True):
            for each in windows:
                row = {"curve": trajectory.curve.label, "batch_size": trajectory.point.batch_size}
                row |= {"from_step": each.low, "to_step": each.high}
                row |= {"noise_scale": each.noise.noise_scale}
                row |= {"noise_low": each.noise.low, "noise_high": each.noise.high}
                rows.append({**row, "measured_steps": each.noise.steps, **critical})
    return pd.DataFrame(rows)


def _panels(data: FigureData) -> list[_Panel]:
    curves = by_curve(data)
    if len(curves) > MOST:
        raise ResultsError(
            f"{count(len(curves), 'curve', 'are')} too many for one figure, which holds "
            f"{count(MOST, 'panel')}",
            hint="choose with --where \"optimizer = 'sgd'\"",
        )
    return [
        _Panel(
            trajectories=trajectories,
            windows=[_windows(trajectory) for trajectory in trajectories],
            critical=Interval() if fit is None else fit.critical_batch_size,
        )
        for _, fit, trajectories in curves
    ]


def _windows(trajectory: Trajectory) -> list[_Window]:
    steps = trajectory.point.steps or 0.0
    return [
        _Window(low=low * steps, high=high * steps, noise=noise)
        for low, high, noise in trajectory.doublings()
        if noise.noise_scale > 0
    ]


def _draw_critical(ax: Axes, critical: Interval) -> None:
    value, low, high = critical.ends
    if low is not None and high is not None:
        ax.axhspan(low, high, color=tint(faint(), 0.25), linewidth=0, zorder=1)
    elif (end := low or high) is not None:
        ax.axhline(end, color=faint(), linewidth=0.9, linestyle=":", zorder=2)
        ax.annotate("≥" if low else "≤", (1, end), (-2, 1), ha="right", va="bottom",
                    xycoords=("axes fraction", "data"), textcoords="offset points",
                    fontsize="small", color=faint())  # fmt: skip
    if value is not None:
        ax.axhline(value, color=ink(), linewidth=1.0, zorder=2)


def _scale(axes: Sequence[Axes], panels: Sequence[_Panel]) -> None:
    every = [
        (trajectory.point.batch_size * (each.low + each.high) / 2, each.noise.noise_scale)
        for panel in panels
        for trajectory, windows in zip(panel.trajectories, panel.windows, strict=True)
        for each in windows
    ]
    ends = [end for panel in panels for end in panel.critical.ends if end is not None]
    x, y = [at for at, _ in every], [noise for _, noise in every] + ends
    for ax in axes:
        ax.set(xscale="log", yscale="log")
        ax.set(xlim=(min(x) / 1.3, max(x) * 1.3), ylim=(min(y) / 1.3, max(y) * 1.3))
        log10_axis(ax.xaxis, min(x), max(x), most=4)
        log10_axis(ax.yaxis, min(y), max(y))


def _handles(panels: Sequence[_Panel]) -> list[Artist]:
    handles: list[Artist] = [
        entry("noise scale", color=ink(), linewidth=0.9, marker="o", markersize=2.4, linestyle="-")
    ]
    intervals = [panel.critical for panel in panels]
    if any(each.value is not None for each in intervals):
        handles.append(entry("critical batch size", color=ink(), linewidth=1.0, linestyle="-"))
    if any(each.reached for each in intervals):
        handles.append(Patch(facecolor=tint(faint(), 0.25), linewidth=0, label="its 90 % interval"))
    if any(not each.reached and not each.is_open for each in intervals):
        handles.append(
            entry("bound of the critical batch size", color=faint(), linewidth=0.9, linestyle=":")
        )
    return handles
