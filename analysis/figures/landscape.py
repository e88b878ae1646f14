"""Learning rate against steps to target, of every trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable

from analysis.curves.curve import Curve
from analysis.curves.groups import labels
from analysis.curves.points import Point
from analysis.curves.runs import TrialOutcome
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ink
from analysis.figures.drawing.legends import entry, shared_legend
from analysis.figures.drawing.page import COLUMN, Page, mark, stroke, unit
from analysis.figures.drawing.style import (
    figure_width,
    grid,
    left_column,
    log2_axis,
    log10_axis,
    size_bar,
    size_colours,
    tiles,
)
from analysis.formatting import units
from results.errors import ResultsError

_PANEL, _LEAST = 2.2, 1.9
"""Inches of a panel: its height, and the width that it needs."""
_ABOVE = {"not reached": 0.05, "infeasible": 0.11}
"""How far above the steps, in parts of the panel, trials stand that did not reach the target."""
_MARKERS = {"not reached": "_", "infeasible": "x"}


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
    """A panel a curve: each trial's learning rate (divided by 1 - momentum where the optimizer has
    that meaning) against its steps to target, in the colour of its batch size.

    Ringed points are the best of each batch size. Above the steps stand trials that did not reach
    the target within their budget (dashes) and those that diverged (crosses): to the left of the
    best they were too slow, to the right too fast. Trials that were cut off are left out.
    """
    curves = [curve for curve in data.curves if any(_hits(point) for point in curve.points)]
    if not curves:
        raise ResultsError(
            "no learning rates to draw", hint="this figure needs trials of a search, not steps"
        )
    need = COLUMN if len(curves) == 1 else 2 * COLUMN
    axes = tiles(
        ax, page, len(curves), "curve", _PANEL, extra=0.85, least=_LEAST, need=need, sharex=False
    )
    points = [point for curve in curves for point in curve.points]
    colours = size_colours([point.batch_size for point in points])
    names = labels([curve.group for curve in curves])
    for panel_ax, curve, name in zip(axes, curves, names, strict=True):
        _draw_panel(panel_ax, curve, colours)
        panel_ax.set_title(name, color=ink(), fontsize="small", pad=3 * unit())
    for panel_ax in left_column(axes):
        panel_ax.set_ylabel("steps to target")
    size_bar(axes, colours, units(curve.example_unit for curve in curves))
    handles = _handles(points)
    wide = figure_width(axes[0]) > 1.3 * COLUMN
    inside = {"loc": "lower left", "bbox_to_anchor": (0, 1.08), "ncols": 2}
    shared_legend(axes, handles, None if ax is None else inside, ncols=len(handles) if wide else 2)
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a trial with a learning rate: its values in the figure, and whether it is the best."""
    rows = [
        {
            "curve": curve.label,
            "batch_size": point.batch_size,
            "trial": trial.trial,
            "became": trial.became,
            "rate": rate,
            "divided_by_one_minus_momentum": trial.momentum is not None,
            "steps": trial.steps,
            "best": trial is _best(point),
        }
        for curve in data.curves
        for point in curve.points
        for trial, rate in _drawn(point)
    ]
    names = ("curve", "batch_size", "trial", "became", "rate", "divided_by_one_minus_momentum")
    return pd.DataFrame(rows, columns=[*names, "steps", "best"])


def _rate(trial: TrialOutcome) -> float | None:
    if trial.learning_rate is None or not trial.learning_rate > 0:
        return None
    return trial.learning_rate if trial.momentum is None else trial.effective_learning_rate


def _drawn(point: Point) -> list[tuple[TrialOutcome, float]]:
    """The trials in the figure, with their rates."""
    rated = [(trial, _rate(trial)) for trial in point.trial_outcomes if trial.became != "dominated"]
    return [(trial, rate) for trial, rate in rated if rate is not None]


def _hits(point: Point) -> list[TrialOutcome]:
    return [t for t in point.trial_outcomes if t.steps is not None and _rate(t) is not None]


def _places(hits: Sequence[TrialOutcome]) -> np.ndarray:
    """Learning rates and steps to target, (2, n)."""
    return np.array([[_rate(t) for t in hits], [t.steps for t in hits]], dtype=float)


def _best(point: Point) -> TrialOutcome | None:
    return min(_hits(point), key=lambda trial: trial.steps or 0.0, default=None)


def _outcomes(points: Sequence[Point]) -> set[str]:
    return {trial.became for point in points for trial in point.trial_outcomes}


def _draw_panel(ax: Axes, curve: Curve, colours: ScalarMappable) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log", base=2)
    steps = [trial.steps or 0.0 for point in curve.points for trial in _hits(point)]
    rates = [rate for point in curve.points for _, rate in _drawn(point)]
    low, high = min(steps) / 1.4, max(steps) * 1.4
    outcomes = _outcomes(curve.points)
    above = max((up for name, up in _ABOVE.items() if name in outcomes), default=0.0)
    ax.set_xlim(min(rates) / 1.4, max(rates) * 1.4)
    ax.set_ylim(low, high * (high / low) ** (above + 0.03 if above else 0))
    log10_axis(ax.xaxis, *ax.get_xlim(), most=4)
    log2_axis(ax.yaxis, low, high, most=6)
    grid(ax)
    if above:
        ax.axhline(high, color=faint(), linewidth=stroke(0.5), zorder=1)
    for point in curve.points:
        colour: Any = colours.to_rgba(np.array(point.batch_size))
        for name, marker in _MARKERS.items():
            x = [rate for trial, rate in _drawn(point) if trial.became == name]
            y = high * (high / low) ** _ABOVE[name]
            ax.plot(x, [y] * len(x), linestyle="none", marker=marker, markersize=mark(3),
                    color=colour, zorder=3, markeredgewidth=stroke(0.7))  # fmt: skip
        ax.plot(*_places(_hits(point)), linestyle="none", marker="o", markersize=mark(2.6),
                color=colour, markeredgewidth=0, zorder=4)  # fmt: skip
        best = _best(point)
        if best is not None:
            ax.plot(*_places([best]), marker="o", markersize=mark(5.5), zorder=5, color=colour,
                    markeredgecolor=ink(), markeredgewidth=stroke(0.9))  # fmt: skip
    trials = [trial for point in curve.points for trial in point.trial_outcomes]
    divided = any(trial.momentum is not None for trial in trials)
    ax.set_xlabel("effective learning rate" if divided else "learning rate")


def _handles(points: Sequence[Point]) -> list[Any]:
    outcomes = _outcomes(points)
    return [
        entry("target reached", marker="o", markersize=2.6, color=faint()),
        entry("best", marker="o", markersize=5.5, color=faint(), markeredgecolor=ink(),
              markeredgewidth=0.9),
        *(entry(name, marker=marker, markersize=3.5, color=faint(), markeredgewidth=0.8)
          for name, marker in _MARKERS.items() if name in outcomes),
    ]  # fmt: skip
