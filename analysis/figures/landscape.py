"""What the search looked like: learning rate against steps to target, of every trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.curves.curve import Curve
from analysis.curves.groups import labels
from analysis.curves.points import Point
from analysis.curves.runs import TrialOutcome
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ink
from analysis.figures.drawing.page import COLUMN, context, mark, stroke, unit
from analysis.figures.drawing.style import (
    grid,
    left_column,
    log2_axis,
    log10_axis,
    panels,
    size_bar,
    size_colours,
    tiles,
)
from analysis.formatting import units
from results.errors import ResultsError

_TALL, _LEAST = 2.2, 1.9
"""Inches of a panel: its height, and what it needs across."""
_ABOVE = {"not reached": 0.05, "infeasible": 0.11}
"""How far above the steps, in parts of the panel, stand those that never reached the target."""


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A panel a curve: each trial's learning rate (divided by 1 - momentum where the optimizer has
    that meaning) against its steps to target, in the colour of its batch size.

    Ringed points are the best of each batch size. Above the steps stand trials that did not reach
    the target within their budget (dashes) and those that diverged (crosses): to the left of the
    best they were too slow, to the right too fast. Trials that were cut off are left out.
    """
    searched = [curve for curve in shown.curves if any(_hits(point) for point in curve.points)]
    if not searched:
        raise ResultsError(
            "no learning rates to draw", hint="this figure needs trials of a search, not steps"
        )
    with context():
        need = COLUMN if len(searched) == 1 else 2 * COLUMN
        axes = panels(
            ax, len(searched),
            lambda: tiles(len(searched), _TALL, extra=0.85, least=_LEAST, need=need, sharex=False),
        )  # fmt: skip
        sizes = [point.batch_size for curve in searched for point in curve.points]
        span = min(sizes), max(max(sizes), 2 * min(sizes))
        colours = ScalarMappable(LogNorm(*span), size_colours())
        texts = labels([curve.group for curve in searched])
        for one, curve, text in zip(axes, searched, texts, strict=True):
            _panel(one, curve, colours)
            one.set_title(text, color=ink(), fontsize="small", pad=3 * unit())
            one.set_xlabel(_measure(curve))
        for one in left_column(axes):
            one.set_ylabel("steps to target")
        _legend(axes, searched, colours, span, alone=ax is not None)
    return axes[0]


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a trial with a learning rate: what stands in the figure, and whether it is the best."""
    rows = [
        {
            "curve": curve.label,
            "batch_size": point.batch_size,
            "trial": one.trial,
            "became": one.became,
            "rate": _rate(one),
            "divided_by_one_minus_momentum": one.momentum is not None,
            "steps": one.steps,
            "best": one is _best(point),
        }
        for curve in shown.curves
        for point in curve.points
        for one in point.trial_outcomes
        if _rate(one) is not None and one.became != "dominated"
    ]
    names = ("curve", "batch_size", "trial", "became", "rate", "divided_by_one_minus_momentum")
    return pd.DataFrame(rows, columns=[*names, "steps", "best"])


def _rate(one: TrialOutcome) -> float | None:
    if one.learning_rate is None or not one.learning_rate > 0:
        return None
    if one.momentum is None:
        return one.learning_rate
    return one.learning_rate / (1 - one.momentum) if one.momentum < 1 else None


def _hits(point: Point) -> list[TrialOutcome]:
    return [one for one in point.trial_outcomes if one.steps is not None and _rate(one) is not None]


def _places(hits: Sequence[TrialOutcome]) -> np.ndarray:
    """Learning rates and steps to target, (2, n)."""
    return np.array([[_rate(one) for one in hits], [one.steps for one in hits]], dtype=float)


def _best(point: Point) -> TrialOutcome | None:
    return min(_hits(point), key=lambda one: one.steps or 0.0, default=None)


def _measure(curve: Curve) -> str:
    divided = any(
        one.momentum is not None for point in curve.points for one in point.trial_outcomes
    )
    return "effective learning rate" if divided else "learning rate"


def _panel(ax: Axes, curve: Curve, colours: ScalarMappable) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log", base=2)
    steps = [one.steps for p in curve.points for one in _hits(p) if one.steps is not None]
    # Only what the panel has: a rate of a trial that was cut off is not drawn.
    rates = [
        rate
        for point in curve.points
        for one in point.trial_outcomes
        if one.became != "dominated" and (rate := _rate(one)) is not None
    ]
    low, high = min(steps) / 1.4, max(steps) * 1.4
    there = {one.became for point in curve.points for one in point.trial_outcomes}
    more = max((up for name, up in _ABOVE.items() if name in there), default=0.0)
    top = high * (high / low) ** (more + 0.03 if more else 0)
    ax.set_xlim(min(rates) / 1.4, max(rates) * 1.4)
    ax.set_ylim(low, top)
    log10_axis(ax.xaxis, *ax.get_xlim(), most=4)
    log2_axis(ax.yaxis, low, high, most=6)
    grid(ax)
    if more:
        ax.axhline(high, color=faint(), linewidth=stroke(0.5), zorder=1)
    for point in curve.points:
        colour = colours.to_rgba(np.array(point.batch_size))
        for name, marker in (("not reached", "_"), ("infeasible", "x")):
            at = [
                x
                for one in point.trial_outcomes
                if one.became == name and (x := _rate(one)) is not None
            ]
            up = high * (high / low) ** _ABOVE[name]
            ax.plot(at, [up] * len(at), linestyle="none",
                    marker=marker, markersize=mark(3), color=colour, zorder=3,
                    markeredgewidth=stroke(0.7))  # fmt: skip
        ax.plot(*_places(_hits(point)), linestyle="none",
                marker="o", markersize=mark(2.6), color=colour, markeredgewidth=0,
                zorder=4)  # fmt: skip
        best = _best(point)
        if best is not None:
            ax.plot(*_places([best]), marker="o", markersize=mark(5.5), zorder=5,
                    color=colour, markeredgecolor=ink(), markeredgewidth=stroke(0.9))  # fmt: skip


def _legend(
    axes: Sequence[Axes],
    curves: Sequence[Curve],
    colours: ScalarMappable,
    span: tuple[float, float],
    *,
    alone: bool,
) -> None:
    there = {
        one.became for curve in curves for point in curve.points for one in point.trial_outcomes
    }
    dot: dict[str, Any] = {"linestyle": "none", "color": faint()}
    handles = [
        Line2D([], [], marker="o", markersize=mark(2.6), label="target reached", **dot),
        Line2D([], [], marker="o", markersize=mark(5.5), label="best", **dot,
               markeredgecolor=ink(), markeredgewidth=stroke(0.9)),
        *(Line2D([], [], marker=marker, markersize=mark(3.5), label=name, **dot,
                 markeredgewidth=stroke(0.8))
          for name, marker in (("not reached", "_"), ("infeasible", "x")) if name in there),
    ]  # fmt: skip
    figure = axes[0].get_figure(root=True)
    assert isinstance(figure, Figure)
    size_bar(axes, colours, span, units(curve.example_unit for curve in curves))
    if alone:
        axes[0].legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.08), ncols=2)
        return
    wide = figure.get_size_inches()[0] / unit() > 1.3 * COLUMN
    figure.legend(
        handles=handles,
        loc="outside upper center",
        ncols=len(handles) if wide else 2,
        columnspacing=1.2,
    )
