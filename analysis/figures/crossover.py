"""Which training algorithm takes fewer steps at which batch size: ratios of two curves, and where
they cross.

A ratio below 1 says that the first of the two takes fewer steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import ink, tint, visible
from analysis.figures.drawing.facets import curve_names
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import BLUE, STYLES, grid, log10_axis, size_axis
from analysis.fit.crossovers import Crossover, crossovers
from analysis.formatting import units

Pair = tuple[Curve, Curve, Crossover]

_WIDEST = 1.6
"""Least share of the axis on either side of a ratio of 1."""


def draw(data: FigureData, *, page: Page) -> Axes:
    """A panel for each pair of curves with one workload, data set and target: steps of the first
    over those of the second against the batch size.

    The line is the ratio of the fitted curves, with its band; points are the ratios of the steps
    measured at batch sizes that both have. Where the band is on one side of 1, the better of the
    two is told. A crossover is marked on the line of 1 with its interval.
    """
    pairs = data.computed(_pairs)
    (axes,) = page.panels([len(pairs)], "pair", 2.3, 1.5)
    for ax, pair in zip(axes, pairs, strict=True):
        _draw_pair(ax, pair)
        size_axis(ax, [pair[2].batch_sizes[0], pair[2].batch_sizes[-1]], page.panel, 1.4)
        page.title(ax, " / ".join(curve_names([(pair[0], None), (pair[1], None)])))
    unit = units(curve.example_unit for first, second, _ in pairs for curve in (first, second))
    page.name_axes(axes, f"batch size ({unit})", "ratio of steps to target")
    level = f"{100 * pairs[0][2].level:g} %"
    handles: list[Artist] = [
        Patch(facecolor=tint(visible(BLUE), 0.25), linewidth=0, label=f"fitted, {level}"),
        marks.entry("measured", marker="o", color=visible(BLUE)),
    ]
    if any(pair.at for _, _, pair in pairs):
        handles.append(marks.entry(f"crossover, {level}", linestyle="-", **marks.crossover_mark()))
    page.legend(axes, handles)
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a batch size that both curves of a pair have: the ratio measured and fitted, its band,
    and the crossovers of the pair."""
    rows = []
    for first, second, pair in data.computed(_pairs):
        x = np.log(pair.batch_sizes)
        for size, measured in _measured(first, second):
            inside = x[0] - 1e-9 <= np.log(size) <= x[-1] + 1e-9
            row = {"first": pair.first, "second": pair.second, "batch_size": size,
                   "target": None if first.target is None else str(first.target),
                   "ratio": measured}  # fmt: skip
            for name in ("ratio", "low", "high"):
                logs = np.log(getattr(pair, name))
                value = float(np.exp(np.interp(np.log(size), x, logs))) if inside else None
                row["fitted_ratio" if name == "ratio" else f"fitted_{name}"] = value
            for i, interval in enumerate(pair.at, start=1):
                row |= interval.columns("crossover" if i == 1 else f"crossover_{i}")
            rows.append(row)
    return pd.DataFrame(rows)


def _pairs(data: FigureData) -> list[Pair]:
    return [
        (data.curves[i], data.curves[j], pair)
        for i, j, pair in crossovers(data.curves, data.regimes)
    ]


def _measured(first: Curve, second: Curve) -> list[tuple[int, float]]:
    """Ratios of steps at the batch sizes that reached the target on both curves."""
    others = {point.batch_size: point.steps for point in second.points}
    return [
        (point.batch_size, point.steps / other)
        for point in first.points
        if point.steps and (other := others.get(point.batch_size))
    ]


def _draw_pair(ax: Axes, pair: Pair) -> None:
    first, second, crossover = pair
    style = replace(STYLES[0], colour=visible(BLUE))
    x = crossover.batch_sizes
    measured = _measured(first, second)
    ends = [*crossover.low, *crossover.high, *(ratio for _, ratio in measured)]
    low, high = min(*ends, 1 / _WIDEST) / 1.15, max(*ends, _WIDEST) * 1.15
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    log10_axis(ax.yaxis, low, high, most=5)
    grid(ax)
    ax.axhline(1, color=ink(), linewidth=0.8, zorder=2)
    ax.fill_between(x, crossover.low, crossover.high, color=tint(style.colour, 0.25), linewidth=0,
                    zorder=1)  # fmt: skip
    ax.plot(x, crossover.ratio, color=style.colour, zorder=3)
    inside = [(size, ratio) for size, ratio in measured if x[0] * 0.99 <= size <= x[-1] * 1.01]
    if inside:
        sizes, ratios = zip(*inside, strict=True)
        marks.dots(ax, sizes, ratios, style)
    for interval in crossover.at:
        marks.draw_interval(ax, interval, 1, (x[0], x[-1]), colour=ink(), width=1.3, cap=4.5)
        if interval.value is not None:
            ax.plot([interval.value], [1], linestyle="none", zorder=6, **marks.crossover_mark())
