"""How figures look: seaborn's theme for paper, sized in inches for one column of print.

Whatever is set in ``RC`` overrides seaborn's; matplotlib's own tools change the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from results.errors import ResultsError

COLUMN = 3.4
"""Width of a column of print."""

INK = "#333333"
FAINT = "#8a8a8a"

RC: Any = {
    **seaborn.axes_style("ticks"),
    **seaborn.plotting_context("paper"),
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.titlelocation": "left",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.borderaxespad": 0.2,
    "hatch.linewidth": 0.6,
    "figure.constrained_layout.w_pad": 0.03,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.dpi": 120,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "pdf.fonttype": 42,  # TrueType, embedded: text stays text
    "ps.fonttype": 42,
}


ABOVE: Any = {
    "loc": "lower left", "bbox_to_anchor": (0, 1.07), "ncols": 2, "fontsize": 6.5,
    "columnspacing": 1.2, "handletextpad": 0.5, "borderpad": 0,
}  # fmt: skip
"""A legend over the title of axes that are full."""


@contextmanager
def context() -> Iterator[None]:
    """Draw and save with ``RC``; the user's own settings come back after."""
    with mpl.rc_context(RC):
        yield


@dataclass(frozen=True)
class Look:
    """A curve's colour (seaborn's colour-blind palette), marker and line, each enough by itself."""

    colour: str
    marker: str
    line: Any


_BLUE, _ORANGE, _GREEN, _VERMILION, _PURPLE, *_, _SKY = seaborn.color_palette("colorblind").as_hex()

LOOKS = (
    Look(_BLUE, "o", "-"),
    Look(_VERMILION, "s", (0, (5, 1.2, 1.2, 1.2))),
    Look(_GREEN, "^", (0, (1.2, 1.0))),
    Look(_PURPLE, "D", (0, (7, 1.5))),
    Look(_ORANGE, "v", (0, (4, 1, 1, 1, 1, 1))),
    Look(_SKY, "P", (0, (2.5, 1))),
    Look("#000000", "X", (0, (9, 1.5, 1.2, 1.5))),
)


def look(i: int) -> Look:
    """The ``i``-th curve's; after seven colours they come again with other markers."""
    again = LOOKS[(i + i // len(LOOKS)) % len(LOOKS)]
    return Look(LOOKS[i % len(LOOKS)].colour, again.marker, again.line)


def tint(colour: str, share: float) -> tuple[float, float, float]:
    """``colour`` on white paper, opaque: transparency does not survive every printer."""
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(colour))
    return red, green, blue


def log2_axis(axis: Axis, low: float, high: float, most: int = 7) -> None:
    """Powers of two between ``low`` and ``high`` as plain numbers, at most ``most`` of them."""
    first, last = int(np.ceil(np.log2(low) - 1e-9)), int(np.floor(np.log2(high) + 1e-9))
    every = max(1, -(-(last - first + 1) // most))
    start = -(-first // every) * every
    axis.set_major_locator(FixedLocator([2.0**i for i in range(start, last + 1, every)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axis.set_minor_formatter(NullFormatter())


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
    width, height = figure.get_size_inches()
    place = ax.get_position()
    return float(place.width * width), float(place.height * height)


def grid(ax: Axes) -> None:
    """Faint lines at the numbers of the axes, under everything."""
    ax.grid(True, color="#e6e6e6", linewidth=0.5, zorder=0)
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
            f"{count} curves do not go on one pair of axes in this figure",
            hint="choose one with --where, or leave ax out",
        )
    return [ax]


def column_of_panels(count: int, height: float) -> list[Axes]:
    """Panels of a new figure of one column's width, one below the other; ``height`` in inches."""
    _, made = plt.subplots(
        count, 1, sharex=True, squeeze=False, layout="constrained", figsize=(COLUMN, height)
    )
    return list(made[:, 0])
