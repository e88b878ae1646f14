"""What became of the trials: reached, not reached, dominated, infeasible, by batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from analysis.curves.curve import Curve
from analysis.curves.groups import labels
from analysis.curves.runs import CLASSES, shares
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ground, ink, seen, tint
from analysis.figures.drawing.page import context
from analysis.figures.drawing.style import (
    ABOVE,
    LOOKS,
    panels,
    plain,
    tiles,
)
from analysis.formatting import units
from results.counts import count
from results.errors import ResultsError

_BLUE, _VERMILION = LOOKS[0].colour, LOOKS[1].colour


def patches() -> dict[str, dict[str, Any]]:
    """How each class is filled; told apart without colour too."""
    return {
        "reached": {"facecolor": seen(_BLUE), "edgecolor": seen(_BLUE)},
        "not reached": {"facecolor": tint(seen(_BLUE), 0.25), "edgecolor": tint(seen(_BLUE), 0.25)},
        "dominated": {"facecolor": ground(), "edgecolor": faint(), "hatch": "//////"},
        "infeasible": {"facecolor": seen(_VERMILION), "edgecolor": seen(_VERMILION)},
    }


WORDS = {
    "reached": "target reached",
    "not reached": "not reached",
    "dominated": "dominated: not known",
    "infeasible": "infeasible",
}


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A panel a curve: for each batch size the shares of its trials that ran.

    Under dominated stopping a trial that was cut off may have reached the target later, and how
    many are depends on the order of training: those are hatched. ``keep: off`` tells.
    """
    searched = [c for c in shown.curves if any(point.trial_outcomes for point in c.points)]
    if not searched:
        raise ResultsError("no trials to draw", hint="this figure needs trials, not steps alone")
    sizes = sorted({point.batch_size for curve in searched for point in curve.points})
    with context():
        axes = panels(
            ax,
            len(searched),
            lambda: tiles(len(searched), 1.05, extra=0.95, least=2.1, sharey=True),
        )
        texts = labels([curve.group for curve in searched])
        for one, curve, text in zip(axes, searched, texts, strict=True):
            _panel(one, curve, text, sizes)
        sizes_of = f"batch size ({units(curve.example_unit for curve in searched)})"
        figure = axes[0].get_figure(root=True)
        assert isinstance(figure, Figure)
        if ax is None:
            figure.supxlabel(sizes_of)
            figure.supylabel("share of trials that ran")
        else:
            ax.set_xlabel(sizes_of)
            ax.set_ylabel("share of trials that ran")
        _legend(axes[0], figure, searched, alone=ax is not None)
    return axes[0]


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a batch size: the trials that ran, and the share of each class."""
    return pd.DataFrame(
        [
            {
                "curve": curve.label,
                "batch_size": point.batch_size,
                "ran": len(point.trial_outcomes),
                **{n.replace(" ", "_"): each for n, each in shares(point.trial_outcomes).items()},
            }
            for curve in shown.curves
            for point in curve.points
        ]
    )


def _panel(ax: Axes, curve: Curve, text: str, sizes: Sequence[int]) -> None:
    places = {size: place for place, size in enumerate(sizes)}
    ran = [point for point in curve.points if point.trial_outcomes]
    found = [(places[point.batch_size], shares(point.trial_outcomes)) for point in ran]
    at = [place for place, _ in found]
    under = np.zeros(len(found))
    for name in CLASSES:
        part = np.array([each[name] for _, each in found])
        ax.bar(at, part, bottom=under, width=0.8, linewidth=0, **patches()[name])
        under += part
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
    ax.set_title(
        f"{text}, {least}{count(counts[-1], 'trial')} a batch size",
        color=ink(),
        fontsize="small",
        pad=3,
    )


def _legend(ax: Axes, figure: Figure, curves: Sequence[Curve], *, alone: bool) -> None:
    points = [point for curve in curves for point in curve.points]
    there = {one.became for point in points for one in point.trial_outcomes}
    handles = [
        Patch(label=WORDS[name], linewidth=0, **patches()[name])
        for name in CLASSES
        if name in there
    ]
    if alone:
        ax.legend(handles=handles, **ABOVE)
        return
    figure.legend(
        handles=handles, loc="outside upper center", fontsize="small", columnspacing=1.2,
        ncols=2 if "dominated" in there or len(handles) > 3 else 3, handlelength=1.6,
    )  # fmt: skip
