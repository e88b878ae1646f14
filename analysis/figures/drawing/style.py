"""How curves, axes and panels look, whatever page they are on (``page``)."""

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
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from analysis.figures.drawing import page
from analysis.figures.drawing.colours import FAINT, INK, dark, grid_colour, tint
from analysis.figures.drawing.page import (
    COLUMN,
    context,
    mark,
    own_cycle,
    room,
    sheet,
    stroke,
    unit,
    width,
)
from results.counts import count as counted
from results.errors import ResultsError

__all__ = ("COLUMN", "FAINT", "INK", "context", "tint")  # with the rest, for those who draw figures

ABOVE: Any = {
    "loc": "lower left", "bbox_to_anchor": (0, 1.07), "ncols": 2,
    "columnspacing": 1.2, "handletextpad": 0.5, "borderpad": 0,
}  # fmt: skip
"""A legend over the title of axes that are full."""


@dataclass(frozen=True)
class Look:
    """A curve's colour, marker and line, each enough by itself."""

    colour: str
    marker: str
    line: Any


_LOOKS = (
    ("o", "-"),
    ("s", (0, (5, 1.2, 1.2, 1.2))),
    ("^", (0, (1.2, 1.0))),
    ("D", (0, (7, 1.5))),
    ("v", (0, (4, 1, 1, 1, 1, 1))),
    ("P", (0, (2.5, 1))),
    ("X", (0, (9, 1.5, 1.2, 1.5))),
)
LOOKS = tuple(
    Look(each["color"], *marked)
    for each, marked in zip(sheet()["axes.prop_cycle"], _LOOKS, strict=True)
)
"""Seaborn's colour-blind palette, its blue darker and its purple lighter: so the first four are
told apart by whoever sees no red, no green or no blue too."""


_VIRIDIS = plt.get_cmap("viridis")


def size_colours() -> LinearSegmentedColormap:
    """The colours of batch sizes; without the yellow, which white paper swallows, or the violet,
    which black does."""
    ends = (0.28, 1.0) if dark() else (0.0, 0.88)
    return LinearSegmentedColormap.from_list("sizes", _VIRIDIS(np.linspace(*ends, 64)))


def look(i: int) -> Look:
    """The ``i``-th curve's; after seven colours they come again with other markers.

    Colours are those of a user's own ``axes.prop_cycle``, where there is one.
    """
    colours = [one.colour for one in LOOKS]
    if own_cycle():
        colours = mpl.rcParams["axes.prop_cycle"].by_key().get("color", colours)
    again = LOOKS[(i + i // len(colours)) % len(LOOKS)]
    return Look(to_hex(colours[i % len(colours)]), again.marker, again.line)


def log2_axis(axis: Axis, low: float, high: float, most: int = 7) -> None:
    """Powers of two between ``low`` and ``high`` as plain numbers, at most ``most`` of them."""
    first, last = int(np.ceil(np.log2(low) - 1e-9)), int(np.floor(np.log2(high) + 1e-9))
    every = max(1, -(-(last - first + 1) // most))
    start = -(-first // every) * every
    axis.set_major_locator(FixedLocator([2.0**i for i in range(start, last + 1, every)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axis.set_minor_formatter(NullFormatter())


def log10_axis(axis: Axis, low: float, high: float, most: int = 5) -> None:
    """Plain decimal numbers between ``low`` and ``high``, at most ``most`` of them: decades, or
    every second, or with their halves where they are few."""
    first, last = np.log10(low) - 1e-9, np.log10(high) + 1e-9
    decades = range(int(np.floor(first)), int(np.ceil(last)) + 1)
    for every, parts in ((1, (1, 2, 5)), (1, (1, 3)), (1, (1,)), *((n, (1,)) for n in range(2, 9))):
        at = [part * 10.0**power for power in decades if power % every == 0 for part in parts]
        at = [each for each in at if first <= np.log10(each) <= last]
        if len(at) <= most:
            break
    axis.set_major_locator(FixedLocator(at))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: decimal(value)))
    axis.set_minor_formatter(NullFormatter())


def decimal(value: float) -> str:
    """A number as one writes it on an axis: 20k, 3M, 0.05, 1e-05."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10.0**power and value >= 10_000:
            return f"{value / 10.0**power:.3g}{letter}"
    return f"{value:g}"


def plain(value: float) -> str:
    """A number as one writes it on an axis: 512, 65,536, 1/8, 3e-05."""
    if value >= 1:
        return f"{value:,.0f}" if value >= 10_000 else f"{value:.0f}"
    over = 1 / value
    return f"1/{over:.0f}" if over <= 2048 else f"{value:.0e}"


def inches(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes, as far as they are laid out."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    whole, tall = figure.get_size_inches()
    place = ax.get_position()
    return float(place.width * whole), float(place.height * tall)


def grid(ax: Axes) -> None:
    """Faint lines at the numbers of the axes, under everything."""
    ax.grid(True, color=grid_colour(), linewidth=stroke(0.5), zorder=0)
    ax.set_axisbelow(True)


def panels(ax: Axes | None, count: int, make: Callable[[], list[Axes]]) -> list[Axes]:
    """The axes of a figure of one panel a curve: the caller's own, or those that ``make`` makes.

    Raises:
        ResultsError: several curves, and one pair of axes to draw them on.
    """
    if ax is None:
        return make()
    if count > 1:
        raise ResultsError(
            f"{counted(count, 'curve', 'do')} not go on one pair of axes in this figure",
            hint="choose one with --where, or leave ax out",
        )
    return [ax]


def tiles(
    count: int,
    tall: float,
    *,
    extra: float = 0.75,
    least: float = 2.4,
    need: float = COLUMN,
    sharex: bool = True,
    sharey: bool = False,
) -> list[Axes]:
    """``count`` panels of a new figure, as many across as it has room for.

    Args:
        tall: inches of a row of panels.
        extra: inches of what stands above and below all of them.
        least: inches that a panel needs across.
        need: inches that the figure would have by itself.

    All are inches of the style sheet's type: larger type takes more of the page.
    """
    most = min(count, max(1, int(room(need) / least + 0.01)))
    down = -(-count // most)
    across = -(-count // down)
    figure, made = plt.subplots(
        down, across, sharex=sharex, sharey=sharey, squeeze=False, layout="constrained",
        figsize=(width(need), page.tall((tall * down + extra) * unit())),
    )  # fmt: skip
    flat = list(made.ravel())
    for spare in flat[count:]:
        figure.delaxes(spare)
    if sharex:
        # Where the row beneath is shorter, the last panel of a column keeps its numbers.
        for one in flat[max(count - across, 0) : count]:
            one.tick_params(labelbottom=True)
    return flat[:count]


def column_of_panels(count: int, height: float) -> list[Axes]:
    """Panels of a new figure of ``height`` inches if they stand one below the other."""
    return tiles(count, (height - 0.75) / count)


def left_column(axes: Sequence[Axes]) -> list[Axes]:
    """Those of ``axes`` that begin a row."""
    specs = [one.get_subplotspec() for one in axes]
    return [
        one for one, spec in zip(axes, specs, strict=True) if spec is None or spec.is_first_col()
    ]


def size_bar(
    axes: Sequence[Axes], colours: ScalarMappable, span: tuple[float, float], unit: str
) -> None:
    """A bar of batch sizes' colours beside all panels; ``span``: the least and the largest, of
    so many ``unit`` (``images``)."""
    figure = axes[0].get_figure(root=True)
    assert isinstance(figure, Figure)
    bar = figure.colorbar(colours, ax=list(axes), pad=0.02, aspect=28, shrink=0.9)
    log2_axis(bar.ax.yaxis, *span)
    bar.ax.tick_params(length=mark(2), width=stroke(0.6))
    bar.outline.set_linewidth(stroke(0.4))
    bar.set_label(f"batch size ({unit})")
