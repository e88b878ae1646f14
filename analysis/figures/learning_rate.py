"""The best effective learning rate against batch size, with the linear and square-root rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis.curves.curve import Curve, names_of
from analysis.curves.edges import Edge
from analysis.curves.points import Point
from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, grey, ink
from analysis.figures.drawing.facets import Pair, styles_of
from analysis.figures.drawing.optimizer_styles import CurveStyle
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import DASHES, grid, log10_axis, size_axis
from analysis.fit.laws import line
from analysis.fit.reference_lines import LINEAR, SQUARE_ROOT, best_rates, level
from analysis.fit.regimes import Regimes
from analysis.formatting import interval, units
from results.errors import ResultsError

RULES: Sequence[tuple[str, float, Any]] = (
    ("linear rule", LINEAR, DASHES),
    ("square-root rule", SQUARE_ROOT, (0, (1, 1.3))),
)


def rule_column(name: str) -> str:
    """The column of numbers that has what a rule says."""
    return name.replace("-", "_").replace(" ", "_")


def draw(data: FigureData, *, page: Page) -> Axes:
    """A panel a curve over one axis of batch sizes, both logarithmic.

    Points are the learning rate of the best trial, divided by 1 - momentum where the optimizer
    has that meaning; bars reach over the up to four best. Rules are fitted in log learning rate
    over the batch sizes up to the critical one (all, where none is known), each with its level
    alone free: a lucky smallest batch size tilts neither. A title has the power of the batch size
    by which the best rates grow there, with its 90 % interval.
    """
    pairs = with_rates(data)
    curves = [curve for curve, _ in pairs]
    (axes,) = page.panels([len(pairs)], "curve", 2.1, 1.15, sharex=True, across=1)
    names = names_of(curves)
    styles, frame = styles_of(names), numbers(data)
    for ax, pair, name in zip(axes, pairs, names, strict=True):
        rows = frame[frame["curve"] == pair[0].label]
        _draw_panel(ax, pair, rows, styles[name])
        plain = " (plain rate)" if measure(pair[0]) != measure(curves[0]) else ""
        power = growth_text(growth(*pair))
        page.title(ax, name + plain + power, color=styles[name].colour, fontweight="bold")
    size_axis(axes[0], [size for curve in curves for size in curve.batch_sizes], page.panel)
    unit = units(curve.example_unit for curve in curves)
    page.name_axes(axes, f"batch size ({unit})", measure(curves[0]))
    page.legend(axes, _handles(curves))
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
            sizes = frame["batch_size"].astype(float)
            frame[rule_column(name)] = level(curve, fit, power) * sizes**power
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def growth(curve: Curve, fit: Regimes | None) -> Sequence[float]:
    """The power of the batch size by which the best rate grows, and its 90 % interval: of a line
    through the batch sizes up to the critical one (all, where fewer than three lie there). NaN
    where even these are too few."""
    sizes, rates = best_rates(curve)
    low = sizes <= ((fit and fit.critical_batch_size.value) or np.inf)
    x, y = np.log([sizes, rates])[:, low if low.sum() > 2 else sizes > 0]
    if len(x) < 3:
        return [np.nan] * 3
    made = line(x, y, np.full(len(x), 1e-3))
    return [made.slope + by * made.slope_by for by in (0, -1, 1)]


def growth_text(ends: Sequence[float]) -> str:
    """The same for the title of a panel."""
    return "" if np.isnan(ends[0]) else f" · best ∝ B^{interval(*ends, number='{:.2f}'.format)}"


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


def _draw_panel(ax: Axes, pair: Pair, rows: pd.DataFrame, style: CurveStyle) -> None:
    curve, fit = pair
    low, high = rows["low"].min() / 2, rows["high"].max() * 2
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    log10_axis(ax.yaxis, low, high)
    grid(ax)
    sizes = rows["batch_size"]
    for name, _, dashes in RULES:
        ax.plot(sizes, rows[rule_column(name)], color=ink(), linewidth=0.9, linestyle=dashes,
                zorder=2)  # fmt: skip
    critical = None if fit is None else fit.critical_batch_size
    if critical is not None and critical.value is not None:
        ax.axvline(critical.value, color=faint(), linewidth=0.8, zorder=1)
        if critical.low is not None and critical.high is not None:
            ax.axvspan(critical.low, critical.high, color=grey("#ececec"), linewidth=0, zorder=0)
    ax.vlines(sizes, rows["low"], rows["high"], color=style.colour, linewidth=0.8, zorder=3)
    marks.dots(ax, sizes, rows["effective_learning_rate"], style)
    for point in curve.points:
        if point.rates:
            marks.ring(ax, point.batch_size, point.rates[0], rate_edges(point))


def _handles(curves: Sequence[Curve]) -> list[Artist]:
    points = [point for curve in curves for point in curve.points]
    handles: list[Artist] = [
        marks.entry(name, color=ink(), linewidth=0.9, linestyle=dashes) for name, _, dashes in RULES
    ]
    handles.append(marks.entry("critical batch size", color=faint(), linewidth=0.8))
    if any(len(point.rates) > 1 for point in points):
        bar: Any = {"marker": "|", "color": faint(), "markersize": 6, "markeredgewidth": 0.8}
        handles.append(marks.entry("up to 4 best trials", **bar))
    return handles + marks.rings(edge for point in points for edge in rate_edges(point))
