"""Error bars, of many points at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.markers import CARETUPBASE

from analysis.figures.drawing.colours import tint
from analysis.figures.drawing.page import mark, stroke

CARET: Any = CARETUPBASE


def draw(
    ax: Axes,
    x: Sequence[float],
    bars: Sequence[tuple[float, float, float]],
    colour: str,
    *,
    width: float = 0.9,
    caret: float = 3,
) -> None:
    """A bar at each ``x``: its value, and its ends. One that is open above ends in a caret.

    They lie under all points, and are paler: bars of several curves meet at a batch size. All are
    one line with gaps, since a figure of many curves takes much longer with a line for each.
    """
    if not bars:
        return
    pale = tint(colour, 0.55)
    tops = [high if np.isfinite(high) else value * 1.25 for value, _, high in bars]
    lines = [(low, top, np.nan) for (_, low, _), top in zip(bars, tops, strict=True)]
    ax.plot(np.repeat(x, 3), np.ravel(lines), color=pale, linewidth=stroke(width), zorder=2)
    above = [i for i, (_, _, high) in enumerate(bars) if not np.isfinite(high)]
    if above:
        ax.plot(
            [x[i] for i in above], [tops[i] for i in above], linestyle="none",
            marker=CARET, markersize=mark(caret), color=pale, zorder=2,
        )  # fmt: skip
