"""What became of the trials: reached, not reached, dominated, infeasible, by batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from analysis.curves.curve import Curve
from analysis.curves.groups import labels
from analysis.curves.runs import CLASSES, shares
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ground, ink, tint, visible
from analysis.figures.drawing.legends import ABOVE, OUTCOMES, shared_legend
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import BLUE, VERMILION, name_axes, plain, tiles
from analysis.formatting import units
from results.counts import count
from results.errors import ResultsError


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
    """A panel a curve: for each batch size the shares of its trials that ran.

    Under dominated stopping a trial that was cut off may have reached the target later, and how
    many are depends on the order of training: those are hatched. ``keep: off`` avoids them.
    """
    curves = [c for c in data.curves if any(point.trial_outcomes for point in c.points)]
    if not curves:
        raise ResultsError("no trials to draw", hint="this figure needs trials, not steps alone")
    sizes = sorted({point.batch_size for curve in curves for point in curve.points})
    axes = tiles(ax, page, len(curves), "curve", 1.05, extra=0.95, least=2.1, sharey=True)
    names = labels([curve.group for curve in curves])
    for panel_ax, curve, name in zip(axes, curves, names, strict=True):
        _draw_panel(panel_ax, curve, name, sizes)
    size_name = f"batch size ({units(curve.example_unit for curve in curves)})"
    name_axes(axes, size_name, "share of trials that ran", given=ax is not None)
    outcomes = {
        trial.became for curve in curves for point in curve.points for trial in point.trial_outcomes
    }
    handles = [
        Patch(label=OUTCOMES[name], linewidth=0, **_fill(name))
        for name in CLASSES
        if name in outcomes
    ]
    shared_legend(
        axes, handles, None if ax is None else ABOVE, fontsize="small", handlelength=1.6,
        ncols=2 if "dominated" in outcomes or len(handles) > 3 else 3,
    )  # fmt: skip
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


def _draw_panel(ax: Axes, curve: Curve, name: str, sizes: Sequence[int]) -> None:
    ran = [point for point in curve.points if point.trial_outcomes]
    places = [sizes.index(point.batch_size) for point in ran]
    parts = [shares(point.trial_outcomes) for point in ran]
    bottom = np.zeros(len(ran))
    for outcome in CLASSES:
        heights = np.array([part[outcome] for part in parts])
        ax.bar(places, heights, bottom=bottom, width=0.8, linewidth=0, **_fill(outcome))
        bottom += heights
    ax.set_ylim(0, 1)
    ax.set_xlim(-0.6, len(sizes) - 0.4)
    many = len(sizes) > 7
    ax.set_xticks(range(len(sizes)), [plain(size) for size in sizes], rotation=60 if many else 0)
    if many:
        plt.setp(ax.get_xticklabels(), ha="right", rotation_mode="anchor")
    ax.tick_params(axis="x", length=0, pad=2)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_yticks([0, 0.5, 1])
    counts = sorted({len(point.trial_outcomes) for point in ran})
    least = f"{counts[0]:,}–" if len(counts) > 1 else ""
    trials = f"{least}{count(counts[-1], 'trial')} a batch size"
    ax.set_title(f"{name}, {trials}", color=ink(), fontsize="small", pad=3)
