"""The styles of curves, and the axes of figures: their scales, numbers, names and panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from analysis.figures.drawing.colours import dark, grid_colour
from analysis.figures.drawing.page import (
    COLUMN,
    Page,
    mark,
    stroke,
    style_sheet,
    unit,
)
from results.counts import count as counted
from results.errors import ResultsError

DASHES = (0, (4, 2))
PERFECT_DASHES = (0, (4, 3))
"""Dashes of a line of perfect scaling, and of a plateau."""


@dataclass(frozen=True)
class CurveStyle:
    """A curve's colour, marker and line; each identifies the curve by itself."""

    colour: str
    marker: str
    line: Any


_MARKERS_AND_LINES = (
    ("o", "-"),
    ("s", (0, (5, 1.2, 1.2, 1.2))),
    ("^", (0, (1.2, 1.0))),
    ("D", (0, (7, 1.5))),
    ("v", (0, (4, 1, 1, 1, 1, 1))),
    ("P", (0, (2.5, 1))),
    ("X", (0, (9, 1.5, 1.2, 1.5))),
)
PALETTE = tuple(
    CurveStyle(cycled["color"], *rest)
    for cycled, rest in zip(style_sheet()["axes.prop_cycle"], _MARKERS_AND_LINES, strict=True)
)
"""Seaborn's colour-blind palette, its blue darker and its purple lighter: so readers who see no
red, no green or no blue distinguish the first four too."""
BLUE, VERMILION, ORANGE = (PALETTE[i].colour for i in (0, 1, 4))


def curve_style(i: int) -> CurveStyle:
    """The ``i``-th curve's; after seven colours they repeat with other markers.

    Colours are those of a user's own ``axes.prop_cycle``, where there is one.
    """
    colours = [style.colour for style in PALETTE]
    cycle = mpl.rcParams["axes.prop_cycle"]
    if cycle not in (mpl.rcParamsDefault["axes.prop_cycle"], style_sheet()["axes.prop_cycle"]):
        colours = cycle.by_key().get("color", colours)
    other = PALETTE[(i + i // len(colours)) % len(PALETTE)]
    return CurveStyle(to_hex(colours[i % len(colours)]), other.marker, other.line)


def size_colours(sizes: Sequence[float]) -> ScalarMappable:
    """The colours of batch sizes: viridis without its yellow, which is hard to see on white paper,
    or without its violet, which is hard to see on black."""
    low, high = min(sizes), max(sizes)
    ends = (0.28, 1.0) if dark() else (0.0, 0.88)
    colours = plt.get_cmap("viridis")(np.linspace(*ends, 64))
    return ScalarMappable(
        LogNorm(low, high if high > low else 2 * low),
        LinearSegmentedColormap.from_list("sizes", colours),
    )


def log2_axis(axis: Axis, low: float, high: float, most: int = 7) -> None:
    """Powers of two between ``low`` and ``high`` as plain numbers, at most ``most`` of them."""
    first, last = int(np.ceil(np.log2(low) - 1e-9)), int(np.floor(np.log2(high) + 1e-9))
    every = max(1, -(-(last - first + 1) // most))
    start = -(-first // every) * every
    _numbers(axis, [2.0**i for i in range(start, last + 1, every)], plain)


def log10_axis(axis: Axis, low: float, high: float, most: int = 5) -> None:
    """Plain decimal numbers between ``low`` and ``high``, at most ``most`` of them: decades, or
    every second, or with their halves where they are few."""
    first, last = np.log10(low) - 1e-9, np.log10(high) + 1e-9
    decades = range(int(np.floor(first)), int(np.ceil(last)) + 1)
    for every, parts in ((1, (1, 2, 5)), (1, (1, 3)), (1, (1,)), *((n, (1,)) for n in range(2, 9))):
        ticks = [part * 10.0**power for power in decades if power % every == 0 for part in parts]
        ticks = [tick for tick in ticks if first <= np.log10(tick) <= last]
        if len(ticks) <= most:
            break
    _numbers(axis, ticks, decimal)


def decimal_axis(axis: Axis, low: float, high: float) -> None:
    """1, 2 and 5 of each decade as plain numbers; 1 alone where there are many."""
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    digits = (1, 2, 5) if high / low < 300 else (1,)
    ticks = [digit * 10.0**power for power in decades for digit in digits]
    _numbers(axis, [tick for tick in ticks if low <= tick <= high], "{:g}".format)


def _numbers(axis: Axis, ticks: Sequence[float], text: Callable[[float], str]) -> None:
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())


def decimal(value: float) -> str:
    """A number as it is written on an axis: 20k, 3M, 0.05, 1e-05."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10.0**power and value >= 10_000:
            return f"{value / 10.0**power:.3g}{letter}"
    return f"{value:g}"


def plain(value: float) -> str:
    """A number as it is written on an axis: 512, 65,536, 1/8, 3e-05."""
    if value >= 1:
        return f"{value:,.0f}" if value >= 10_000 else f"{value:.0f}"
    inverse = 1 / value
    return f"1/{inverse:.0f}" if inverse <= 2048 else f"{value:.0e}"


def figure_of(ax: Axes) -> Figure:
    """The figure that axes belong to."""
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


def figure_width(ax: Axes) -> float:
    """The width of the axes' figure, in inches at the type of the style sheet."""
    return float(figure_of(ax).get_size_inches()[0]) / unit()


def inches(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes, as far as they are laid out."""
    width, height = figure_of(ax).get_size_inches()
    place = ax.get_position()
    return float(place.width * width), float(place.height * height)


def grid(ax: Axes) -> None:
    """Faint lines at the numbers of the axes, under everything."""
    ax.grid(True, color=grid_colour(), linewidth=stroke(0.5), zorder=0)
    ax.set_axisbelow(True)


def given_axes(ax: Axes, count: int, noun: str) -> list[Axes]:
    """The caller's own axes, for a figure of one panel.

    Raises:
        ResultsError: several panels (each a ``noun``), and one pair of axes to draw them on.
    """
    if count > 1:
        example = ' "batch_size = 64"' if noun == "batch size" else ""
        raise ResultsError(
            f"{counted(count, noun, 'do')} not fit on one pair of axes in this figure",
            hint=f"choose one with --where{example}, or leave ax out",
        )
    return [ax]


def tiles(
    ax: Axes | None,
    page: Page | None,
    count: int,
    noun: str,
    height: float,
    *,
    extra: float = 0.75,
    least: float = 2.4,
    need: float = COLUMN,
    sharex: bool = True,
    sharey: bool = False,
) -> list[Axes]:
    """``count`` panels of a new figure, as many in a row as its width allows; or ``ax``, for one.

    Args:
        noun: what a panel is, for the error of several panels and one ``ax``.
        height: inches of a row of panels.
        extra: inches of the texts above and below all of them.
        least: inches of width that a panel needs.
        need: inches of width that the figure would have by itself.

    All are inches at the type of the style sheet: larger type takes more of the page.
    """
    if ax is not None:
        return given_axes(ax, count, noun)
    page = page or Page()
    rows, columns = shape(page, count, least, need)
    figure, made = plt.subplots(
        rows, columns, sharex=sharex, sharey=sharey, squeeze=False, layout="constrained",
        figsize=page.size(need, height * rows + extra),
    )  # fmt: skip
    axes = list(made.ravel())
    for unused in axes[count:]:
        figure.delaxes(unused)
    if sharex:
        # Where the row beneath is shorter, the last panel of a column keeps its numbers.
        for ax in axes[max(count - columns, 0) : count]:
            ax.tick_params(labelbottom=True)
    return axes[:count]


def shape(page: Page, count: int, least: float, need: float) -> tuple[int, int]:
    """Rows and columns of ``count`` panels, each ``least`` inches wide: see ``tiles``."""
    most = min(count, max(1, int(page.usable(need) / least + 0.01)))
    rows = -(-count // most)
    return rows, -(-count // rows)


def left_column(axes: Sequence[Axes]) -> list[Axes]:
    """The first panel of each row."""
    specs = [ax.get_subplotspec() for ax in axes]
    return [ax for ax, spec in zip(axes, specs, strict=True) if spec is None or spec.is_first_col()]


def name_axes(axes: Sequence[Axes], x: str, y: str, *, given: bool, **options: Any) -> None:
    """Name the two axes: once for the whole figure, or on the caller's axes (``given``)."""
    if given:
        axes[0].set_xlabel(x)
        axes[0].set_ylabel(y)
        return
    figure = figure_of(axes[0])
    figure.supxlabel(x, **options)
    figure.supylabel(y, **options)


def size_bar(axes: Sequence[Axes], colours: ScalarMappable, unit: str) -> None:
    """A bar of the colours of batch sizes beside all panels; of so many ``unit`` (``images``)."""
    bar = figure_of(axes[0]).colorbar(colours, ax=list(axes), pad=0.02, aspect=28, shrink=0.9)
    low, high = colours.get_clim()
    assert low is not None
    assert high is not None
    log2_axis(bar.ax.yaxis, low, high)
    bar.ax.tick_params(length=mark(2), width=stroke(0.6))
    bar.outline.set_linewidth(stroke(0.4))
    bar.set_label(f"batch size ({unit})")
