"""The styles of curves, and the axes of figures: their scales and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm, to_hex
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from analysis.figures.drawing.colours import dark, grid_colour
from analysis.figures.drawing.optimizer_styles import STYLES, CurveStyle
from analysis.figures.drawing.page import style_sheet

DASHES = (0, (4, 2))
PERFECT_DASHES = (0, (4, 3))
"""Dashes of a line of perfect scaling, and of a plateau."""
BLUE, VERMILION, ORANGE = (STYLES[i].colour for i in (0, 1, 4))


def curve_style(i: int) -> CurveStyle:
    """The ``i``-th curve's; after seven colours they repeat with other markers.

    Colours are those of a user's own ``axes.prop_cycle``, where there is one.
    """
    colours = [style.colour for style in STYLES]
    cycle = mpl.rcParams["axes.prop_cycle"]
    if cycle not in (mpl.rcParamsDefault["axes.prop_cycle"], style_sheet()["axes.prop_cycle"]):
        colours = cycle.by_key().get("color", colours)
    other = STYLES[(i + i // len(colours)) % len(STYLES)]
    return CurveStyle(to_hex(colours[i % len(colours)]), other.marker, other.line)


def log_colours(values: Sequence[float] | pd.Series) -> ScalarMappable:
    """The colours of numbers by their logarithm: viridis without its yellow, which is hard to see
    on white paper, or without its violet, which is hard to see on black."""
    low, high = min(values), max(values)
    ends = (0.28, 1.0) if dark() else (0.0, 0.88)
    colours = plt.get_cmap("viridis")(np.linspace(*ends, 64))
    return ScalarMappable(
        LogNorm(low, high if high > low else 2 * low),
        LinearSegmentedColormap.from_list("logarithmic", colours),
    )


def colour_bar(axes: Sequence[Axes], colours: ScalarMappable, name: str) -> None:
    """A named bar of such colours beside all panels."""
    figure: Any = axes[0].get_figure(root=True)
    bar = figure.colorbar(colours, ax=list(axes), pad=0.02, aspect=28, shrink=0.9)
    log2_axis(bar.ax.yaxis, *map(float, colours.get_clim()))
    bar.outline.set_linewidth(0.4)
    bar.set_label(name)


def log2_axis(axis: Axis, low: float, high: float, most: float = 7) -> None:
    """Powers of two between ``low`` and ``high``, at most ``most`` numbers."""
    first, last = int(np.ceil(np.log2(low) - 1e-9)), int(np.floor(np.log2(high) + 1e-9))
    every = max(1, -(-(last - first + 1) // max(int(most), 2)))
    start = -(-first // every) * every
    _set_numbers(axis, [2.0**i for i in range(start, last + 1, every)], low, high)


def size_axis(ax: Axes, sizes: Sequence[float], inches: float, margin: float = 1.5) -> None:
    """Batch sizes along the horizontal axis, as many numbers as fit in so many inches."""
    ax.set_xscale("log", base=2)
    ax.set_xlim(min(sizes) / margin, max(sizes) * margin)
    most = inches / (0.062 * len(number(max(sizes))) + 0.1)
    log2_axis(ax.xaxis, min(sizes), max(sizes), min(most, 7))


def size_ticks(ax: Axes, sizes: Sequence[int], inches: float, first: float = 0.0) -> None:
    """Names of batch sizes that stand side by side, at 1 from each other; slanted where they do not
    fit in so many inches."""
    places, names = first + np.arange(len(sizes)), list(map(number, sizes))
    if inches < (0.05 * max(map(len, names)) + 0.04) * len(names):
        ax.set_xticks(places, names, rotation=60, ha="right", rotation_mode="anchor")
    else:
        ax.set_xticks(places, names)
    ax.tick_params(axis="x", length=0, pad=2)


def log10_axis(axis: Axis, low: float, high: float, most: int = 5) -> None:
    """Decimal numbers between ``low`` and ``high``, at most ``most`` of them: decades, or every
    second, or with their halves where they are few."""
    first, last = np.log10(low) - 1e-9, np.log10(high) + 1e-9
    decades = range(int(np.floor(first)), int(np.ceil(last)) + 1)
    for every, parts in ((1, (1, 2, 5)), (1, (1, 3)), (1, (1,)), *((n, (1,)) for n in range(2, 9))):
        ticks = [part * 10.0**power for power in decades if power % every == 0 for part in parts]
        ticks = [tick for tick in ticks if first <= np.log10(tick) <= last]
        if len(ticks) <= most:
            break
    _set_numbers(axis, ticks, low, high)


def _set_numbers(axis: Axis, ticks: Sequence[float], low: float, high: float) -> None:
    if len(ticks) < 2:  # no scale: between two round numbers, as linear axes have them
        near = [low]
        if high > low * 1.01:
            near = [*MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, high)]
        ticks = [tick for tick in near if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)] or ticks
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.set_minor_formatter(NullFormatter())


def number(value: float) -> str:
    """A number as it is written on an axis: 512, 65,536, 131k, 20k, 2.1M, 0.05, 1e-05."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= max(10.0**power, 1e4) and (value >= 1e5 or value % 1000 == 0):
            return f"{value / 10.0**power:.3g}{letter}"
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}" if value >= 1 else f"{value:.3g}"


def grid(ax: Axes) -> None:
    """Faint lines at the numbers of the axes, under everything."""
    ax.grid(True, color=grid_colour(), zorder=0)
    ax.set_axisbelow(True)
