"""The expected best against the number of trials: was N enough?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.curves.curve import Curve
from analysis.curves.estimators import ENOUGH, Budget
from analysis.curves.groups import labels
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ink
from analysis.figures.drawing.legends import entry, shared_legend
from analysis.figures.drawing.page import COLUMN, Page, stroke
from analysis.figures.drawing.style import DASHES, grid, left_column, size_bar, size_colours, tiles
from analysis.formatting import units
from results.errors import ResultsError

_PANEL, _LEAST = 2.1, 1.8
"""Inches of a panel: its height, and the width that it needs."""
_TOP = 1.5
"""Ratios above it are cut off: they say that N is far too small."""


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
    """A panel a curve: for each batch size the expected best of n trials over the best of N.

    Where the search space was enlarged, n counts the trials within the space as it was first given.
    Only those n are drawn of which at most 5 % of the subsets have a best that is not known. The
    black line is the geometric mean of the batch sizes, by which N is called enough: its value at
    half of the trials is to be at most the dashed line.
    """
    curves = [curve for curve in data.curves if _budgets(curve)]
    if not curves:
        raise ResultsError("no budget check to draw", hint=_why_not(data.curves))
    need = COLUMN if len(curves) == 1 else 2 * COLUMN
    axes = tiles(
        ax, page, len(curves), "curve", _PANEL, least=_LEAST, need=need, sharex=False, sharey=True
    )
    budgets = [budget for curve in curves for budget in _budgets(curve)]
    colours = size_colours([size for size, _ in budgets])
    names = labels([curve.group for curve in curves])
    for panel_ax, curve, name in zip(axes, curves, names, strict=True):
        _draw_panel(panel_ax, curve, name, colours)
    highest = [max(budget.fewest_ratio for _, budget in _budgets(curve)) for curve in curves]
    top = max(min(_TOP, ratio) for ratio in highest)
    for panel_ax in axes:
        panel_ax.set_ylim(1 - 0.03 * (top - 1), 1 + 1.12 * (max(top, 1.08) - 1))
    for panel_ax in left_column(axes):
        panel_ax.set_ylabel("expected best of n / best of N")
    size_bar(axes, colours, units(curve.example_unit for curve in curves))
    handles = [
        entry("geometric mean", color=ink(), linewidth=1.8),
        entry("half of the trials", color=faint(), linewidth=0.8),
        entry(f"{ENOUGH:.0%} more steps", color=faint(), linewidth=0.8, linestyle=DASHES),
    ]
    shared_legend(
        axes, handles, None if ax is None else {"loc": "upper right"},
        ncols=3, fontsize="small", handlelength=2,
    )  # fmt: skip
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a batch size and number of trials."""
    rows = [
        {
            "curve": curve.label,
            "batch_size": size,
            "n": n,
            "expected_best": expected,
            "ratio": expected / budget.expected[-1],
            "trials": budget.trials,
            "enlarged": budget.enlarged,
            "known": budget.known,
        }
        for curve in data.curves
        for size, budget in _budgets(curve)
        for n, expected in zip(budget.n, budget.expected, strict=True)
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


def _draw_panel(ax: Axes, curve: Curve, name: str, colours: ScalarMappable) -> None:
    sizes, budgets = zip(*_budgets(curve), strict=True)
    grid(ax)
    for size, budget in zip(sizes, budgets, strict=True):
        ax.plot(budget.shares, np.array(budget.expected) / budget.expected[-1], zorder=3,
                color=colours.to_rgba(np.array(size)), linewidth=stroke(0.9))  # fmt: skip
    trials = max(budget.first for budget in budgets)
    starts = [budget.shares[0] for budget in budgets]
    first, last = max(starts), min(budget.first for budget in budgets)
    if len(budgets) > 1 and first < last:
        n = np.linspace(first, last, 200)
        ratios = [np.interp(n, b.shares, b.expected) / b.expected[-1] for b in budgets]
        mean = np.exp(np.mean(np.log(ratios), axis=0))
        ax.plot(n, mean, color=ink(), linewidth=stroke(1.8), zorder=4)
    ax.axhline(1 + ENOUGH, color=faint(), linewidth=stroke(0.8), linestyle=DASHES, zorder=2)
    ax.axvline(trials / 2, color=faint(), linewidth=stroke(0.8), zorder=2)
    ax.set_xlim(min(*starts, trials / 2) - 0.02 * trials, trials * 1.01)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(6))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    ax.set_xlabel("trials n")
    ax.set_title(f"{name}, N = {trials}", color=ink())
