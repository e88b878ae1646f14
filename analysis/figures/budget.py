"""The expected best against the number of trials: was N enough?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.curves.curve import Curve
from analysis.curves.estimators import ENOUGH, Budget
from analysis.curves.groups import labels
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ink
from analysis.figures.drawing.page import COLUMN, context, stroke
from analysis.figures.drawing.style import grid, left_column, panels, size_bar, size_colours, tiles
from analysis.formatting import units
from results.errors import ResultsError

_PANEL, _LEAST = 2.1, 1.8
"""Inches of a panel: its height, and what it needs across."""
_TOP = 1.5
"""Ratios above it are cut off: what they say is that N is far too small."""


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A panel a curve: for each batch size the expected best of n trials over the best of N.

    Where the search space was enlarged, n is what the space as it was first given has of them.
    Only those n are drawn of which at most 5 % of the subsets have a best that is not known. The
    black line is the geometric mean of the batch sizes, by which N is called enough: its value at
    half of the trials is to be at most the dashed line.
    """
    checked = [curve for curve in shown.curves if _budgets(curve)]
    if not checked:
        raise ResultsError("no budget check to draw", hint=_why_not(shown.curves))
    with context():
        axes = panels(ax, len(checked), lambda: _grid(len(checked)))
        span = _span(checked)
        colours = ScalarMappable(LogNorm(*span), size_colours())
        texts = labels([curve.group for curve in checked])
        for one, curve, text in zip(axes, checked, texts, strict=True):
            _panel(one, curve, text, colours)
        top = max(min(_TOP, _highest(curve)) for curve in checked)
        for one in axes:
            one.set_ylim(1 - 0.03 * (top - 1), 1 + 1.12 * (max(top, 1.08) - 1))
        for one in left_column(axes):
            one.set_ylabel("expected best of n / best of N")
        unit = units(curve.example_unit for curve in checked)
        _legend(axes, colours, span, unit, alone=ax is not None)
    return axes[0]


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a batch size and number of trials."""
    rows = [
        {
            "curve": curve.label,
            "batch_size": size,
            "n": n,
            "expected_best": expected,
            "ratio": expected / each.expected[-1],
            "trials": each.trials,
            "enlarged": each.enlarged,
            "known": each.known,
        }
        for curve in shown.curves
        for size, each in _budgets(curve)
        for n, expected in zip(each.n, each.expected, strict=True)
    ]
    names = ("curve", "batch_size", "n", "expected_best", "ratio", "trials", "enlarged", "known")
    return pd.DataFrame(rows, columns=list(names))


def _budgets(curve: Curve) -> list[tuple[int, Budget]]:
    return [
        (point.batch_size, point.budget)
        for point in curve.points
        if point.budget is not None and len(point.budget.n) > 1
    ]


def _why_not(curves: Sequence[Curve]) -> str:
    reasons = [curve.withheld for curve in curves if curve.withheld]
    if reasons:
        return reasons[0]
    if all(curve.repeats for curve in curves):
        return "this figure needs trials of a search, not steps"
    return "it needs one training algorithm a curve, the minimum of one search, and several trials"


def _grid(count: int) -> list[Axes]:
    need = COLUMN if count == 1 else 2 * COLUMN
    return tiles(count, _PANEL, least=_LEAST, need=need, sharex=False, sharey=True)


def _span(curves: Sequence[Curve]) -> tuple[float, float]:
    sizes = [size for curve in curves for size, _ in _budgets(curve)]
    low, high = min(sizes), max(sizes)
    return low, high if high > low else 2 * low


def _panel(ax: Axes, curve: Curve, text: str, colours: ScalarMappable) -> None:
    found = _budgets(curve)
    grid(ax)
    for size, each in found:
        ratio = np.array(each.expected) / each.expected[-1]
        ax.plot(
            each.shares,
            ratio,
            color=colours.to_rgba(np.array(size)),
            linewidth=stroke(0.9),
            zorder=3,
        )
    trials = max(each.first for _, each in found)
    first, last = max(each.shares[0] for _, each in found), min(each.first for _, each in found)
    if len(found) > 1 and first < last:
        n = np.linspace(first, last, 200)
        ratios = [np.interp(n, each.shares, each.expected) / each.expected[-1] for _, each in found]
        mean = np.exp(np.mean(np.log(ratios), axis=0))
        ax.plot(n, mean, color=ink(), linewidth=stroke(1.8), zorder=4)
    ax.axhline(1 + ENOUGH, color=faint(), linewidth=stroke(0.8), linestyle=(0, (4, 2)), zorder=2)
    ax.axvline(trials / 2, color=faint(), linewidth=stroke(0.8), zorder=2)
    least = min(each.shares[0] for _, each in found)
    ax.set_xlim(min(least, trials / 2) - 0.02 * trials, trials * 1.01)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(6))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    ax.set_xlabel("trials n")
    ax.set_title(f"{text}, N = {trials}", color=ink())


def _highest(curve: Curve) -> float:
    return max(each.fewest_ratio for _, each in _budgets(curve))


def _legend(
    axes: Sequence[Axes],
    colours: ScalarMappable,
    span: tuple[float, float],
    unit: str,
    *,
    alone: bool,
) -> None:
    handles = [
        Line2D([], [], color=ink(), linewidth=stroke(1.8), label="geometric mean"),
        Line2D([], [], color=faint(), linewidth=stroke(0.8), label="half of the trials"),
        Line2D([], [], color=faint(), linewidth=stroke(0.8), linestyle=(0, (4, 2)),
               label=f"{ENOUGH:.0%} more steps"),
    ]  # fmt: skip
    figure = axes[0].get_figure(root=True)
    assert isinstance(figure, Figure)
    size_bar(axes, colours, span, unit)
    if alone:
        axes[0].legend(handles=handles, loc="upper right")
        return
    figure.legend(
        handles=handles, loc="outside upper center", ncols=3, fontsize="small", columnspacing=1.2,
        handlelength=2,
    )  # fmt: skip
