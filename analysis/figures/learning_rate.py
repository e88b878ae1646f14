"""The best effective learning rate against batch size, with the linear and square-root rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from analysis.curves.curve import Curve
from analysis.curves.edges import Edge
from analysis.curves.groups import labels
from analysis.curves.points import Point
from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, grey, ground, ink
from analysis.figures.drawing.legends import entry, shared_legend
from analysis.figures.drawing.optimizer_styles import style_numbers
from analysis.figures.drawing.page import Page, stroke, unit
from analysis.figures.drawing.panels import Pair
from analysis.figures.drawing.style import (
    DASHES,
    CurveStyle,
    curve_style,
    grid,
    inches,
    log2_axis,
    name_axes,
    tiles,
)
from analysis.figures.drawing.text_fit import within
from analysis.fit.reference_lines import LINEAR, SQUARE_ROOT, best_rates, level
from analysis.fit.regimes import Regimes
from analysis.formatting import units
from results.errors import ResultsError

_INSIDE = 0.5
"""The part of a panel's width that a curve's name may take in it; a longer one is its title."""
RULES: Sequence[tuple[str, float, Any]] = (
    ("linear rule", LINEAR, DASHES),
    ("square-root rule", SQUARE_ROOT, (0, (1, 1.3))),
)


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
    """A panel a curve over one axis of batch sizes, log₂ against log₂.

    Points are the learning rate of the best trial, divided by 1 - momentum where the optimizer
    has that meaning; bars reach over the up to four best. Rules are fitted in log learning rate
    over the batch sizes up to the critical one (all, where none is known), each with its level
    alone free: a lucky smallest batch size tilts neither.
    """
    pairs = with_rates(data)
    curves = [curve for curve, _ in pairs]
    axes = tiles(ax, page, len(pairs), "curve", 1.25, least=2.1)
    names = labels([curve.group for curve in curves])
    numbers_of = style_numbers(names)
    for panel_ax, (curve, fit), name in zip(axes, pairs, names, strict=True):
        _draw_panel(panel_ax, curve, fit, curve_style(numbers_of[name]), name)
    sizes = [size for curve in curves for size in curve.batch_sizes]
    axes[0].set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
    log2_axis(axes[0].xaxis, min(sizes), max(sizes))
    unit_name = units(curve.example_unit for curve in curves)
    name_axes(axes, f"batch size ({unit_name})", measure(curves[0]), given=ax is not None)
    handles = _handles(curves)
    shared_legend(
        axes, handles, None if ax is None else {"loc": "upper left"},
        ncols=3 if len(handles) == 3 else 2, fontsize="small", handlelength=2,
    )  # fmt: skip
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a batch size: the best learning rates, and what the two rules say."""
    frames = []
    for curve, fit in data.pairs:
        points = [point for point in curve.points if point.rates]
        frame = pd.DataFrame(
            {
                "curve": curve.label,
                "batch_size": [point.batch_size for point in points],
                "effective_learning_rate": [point.rates[0] for point in points],
                "low": [min(point.rates) for point in points],
                "high": [max(point.rates) for point in points],
                "divided_by_one_minus_momentum": [
                    point.effective_learning_rate is not None for point in points
                ],
                "steps": [point.steps for point in points],
                "trials": [point.trials for point in points],
                "edges": ["; ".join(edge.text for edge in point.edges) for point in points],
            }
        )
        for name, power, _ in RULES:
            column = name.replace("-", "_").replace(" ", "_")
            frame[column] = level(curve, fit, power) * frame["batch_size"].astype(float) ** power
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def with_rates(data: FigureData) -> list[Pair]:
    """The curves that have learning rates, with their regimes.

    Raises:
        ResultsError: there is none.
    """
    rated = [(curve, fit) for curve, fit in data.pairs if best_rates(curve)[0].size]
    if not rated:
        raise ResultsError(
            "no learning rates to draw", hint="this figure needs trials of a search, not steps"
        )
    return rated


def rate_edges(point: Point) -> list[Edge]:
    """The edges of the space of learning rates on which the optimum sits."""
    return [edge for edge in point.edges if edge.dimension == "learning_rate"]


def measure(curve: Curve) -> str:
    """What the vertical axis shows."""
    divided = any(point.effective_learning_rate is not None for point in curve.points)
    return "best effective learning rate" if divided else "best learning rate"


def _draw_panel(ax: Axes, curve: Curve, fit: Regimes | None, style: CurveStyle, name: str) -> None:
    sizes, _ = best_rates(curve)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    grid(ax)
    ends = np.array([sizes.min(), sizes.max()])
    for _, power, dashes in RULES:
        ax.plot(ends, level(curve, fit, power) * ends**power, color=ink(), linewidth=stroke(0.9),
                linestyle=dashes, zorder=2)  # fmt: skip
    critical = None if fit is None else fit.critical_batch_size
    if critical is not None and critical.value is not None:
        ax.axvline(critical.value, color=faint(), linewidth=stroke(0.8), zorder=1)
        if critical.low is not None and critical.high is not None:
            ax.axvspan(critical.low, critical.high, color=grey("#ececec"), linewidth=0, zorder=0)
    for point in curve.points:
        if point.rates:
            size, ends_of_bar = point.batch_size, [min(point.rates), max(point.rates)]
            ax.plot([size, size], ends_of_bar, color=style.colour, linewidth=stroke(0.8), zorder=3)
            ax.plot([size], [point.rates[0]], marker=style.marker, color=style.colour, zorder=4,
                    markeredgecolor=ground(), markeredgewidth=stroke(0.5))  # fmt: skip
            marks.ring(ax, size, point.rates[0], rate_edges(point))
    rates = [rate for point in curve.points for rate in point.rates]
    low, high = min(rates) / 2, max(rates) * 2
    ax.set_ylim(low, high)
    log2_axis(ax.yaxis, low, high, most=5)
    if measure(curve) == "best learning rate":
        name = f"{name} (plain rate)"
    if not within(_INSIDE * inches(ax)[0])(name):
        ax.set_title(name, color=style.colour, fontweight="bold", pad=3 * unit())
        return
    ax.text(
        0.98, 0.06, name, transform=ax.transAxes, ha="right", va="bottom", color=style.colour,
        fontsize="medium", fontweight="bold",
        path_effects=[withStroke(linewidth=stroke(2), foreground=ground())],
    )  # fmt: skip


def _handles(curves: Sequence[Curve]) -> list[Artist]:
    points = [point for curve in curves for point in curve.points]
    handles: list[Artist] = [
        entry(name, color=ink(), linewidth=0.9, linestyle=dashes) for name, _, dashes in RULES
    ]
    handles.append(entry("critical batch size", color=faint(), linewidth=0.8))
    if any(len(point.rates) > 1 for point in points):
        handles.append(
            entry("up to 4 best trials", marker="|", color=faint(), markersize=6,
                  markeredgewidth=0.8)
        )  # fmt: skip
    return handles + marks.rings(edge for point in points for edge in rate_edges(point))
