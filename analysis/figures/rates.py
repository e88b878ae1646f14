"""What became of the trials: reached, not reached, dominated, infeasible, by batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from analysis.curves.curve import names_of
from analysis.curves.runs import CLASSES, shares
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ground, ink, tint, visible
from analysis.figures.drawing.marks import OUTCOMES
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import BLUE, VERMILION, size_ticks
from analysis.formatting import units
from results.counts import count
from results.errors import ResultsError


def draw(data: FigureData, *, page: Page) -> Axes:
    """A panel a curve: for each batch size the shares of its trials that ran.

    Under dominated stopping a trial that was cut off may have reached the target later, and how
    many are depends on the order of training: those are hatched. ``keep: off`` avoids them.
    """
    curves = [c for c in data.curves if any(point.trial_outcomes for point in c.points)]
    if not curves:
        raise ResultsError("no trials to draw", hint="this figure needs trials, not steps alone")
    frame = numbers(data)
    frame = frame[frame["ran"] > 0]
    sizes = sorted({point.batch_size for curve in curves for point in curve.points})
    (axes,) = page.panels([len(curves)], "curve", 2.1, 0.95, sharex=True, sharey=True, across=1)
    names = names_of(curves)
    for ax, curve, name in zip(axes, curves, names, strict=True):
        rows = frame[frame["curve"] == curve.label]
        _draw_panel(ax, rows, sizes)
        size_ticks(ax, sizes, page.panel)
        least, most = rows["ran"].min(), rows["ran"].max()
        trials = (f"{least:,}–" if least < most else "") + count(int(most), "trial")
        page.title(ax, f"{name}, {trials} a batch size", color=ink())
    unit = units(curve.example_unit for curve in curves)
    page.name_axes(axes, f"batch size ({unit})", "share of trials that ran")
    drawn = [name for name in CLASSES if frame[name.replace(" ", "_")].any()]
    handles = [Patch(label=OUTCOMES[name], linewidth=0, **_fill(name)) for name in drawn]
    page.legend(axes, handles)
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a batch size: the trials that ran, and the share of each class."""
    return pd.DataFrame(
        [
            {
                "curve": curve.label,
                "batch_size": point.batch_size,
                "ran": len(point.trial_outcomes),
                **{n.replace(" ", "_"): each for n, each in shares(point.trial_outcomes).items()},
            }
            for curve in data.curves
            for point in curve.points
        ]
    )


def _fill(outcome: str) -> dict[str, Any]:
    """How the bars of a class are filled; different without colour too."""
    if outcome == "dominated":
        return {"facecolor": ground(), "edgecolor": faint(), "hatch": "//////"}
    colour: Any = visible(VERMILION if outcome == "infeasible" else BLUE)
    colour = tint(colour, 0.25) if outcome == "not reached" else colour
    return {"facecolor": colour, "edgecolor": colour}


def _draw_panel(ax: Axes, rows: pd.DataFrame, sizes: Sequence[int]) -> None:
    places = [sizes.index(size) for size in rows["batch_size"]]
    bottom = np.zeros(len(rows))
    for outcome in CLASSES:
        heights = rows[outcome.replace(" ", "_")].to_numpy()
        ax.bar(places, heights, bottom=bottom, width=0.8, linewidth=0, **_fill(outcome))
        bottom += heights
    ax.set_ylim(0, 1)
    ax.set_xlim(-0.6, len(sizes) - 0.4)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_yticks([0, 0.5, 1])
