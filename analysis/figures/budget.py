"""Was N enough? The expected best against the number of trials, and the best of N over the limit
that unlimited trials would reach, against batch size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.ticker import FuncFormatter, MaxNLocator

from analysis.curves.curve import Curve, names_of
from analysis.curves.estimators import ENOUGH, Budget
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ground, ink
from analysis.figures.drawing.marks import entry
from analysis.figures.drawing.page import Page, name_once
from analysis.figures.drawing.style import DASHES, colour_bar, grid, log_colours, size_axis
from analysis.fit.interval import Interval
from analysis.fit.search_limits import SearchTrend, search_trend
from analysis.formatting import units
from results.errors import ResultsError

_TOP = 1.5
"""Ratios above it are cut off: they say that N is far too small."""
_BARS = 2.5
"""Error bars leave a panel of limits above so many times the highest value's distance from 1."""
_NAMES = ("curve", "batch_size", "n", "expected_best", "ratio", "trials", "enlarged", "known")
_OVER_LIMIT = ("over_limit", "over_limit_low", "over_limit_high", "over_limit_trend")


def draw(data: FigureData, *, page: Page) -> Axes:
    """A panel a curve: for each batch size the expected best of n trials over the best of N.

    Where the search space was enlarged, n counts the trials within the space as it was first given.
    Only those n are drawn of which at most 5 % of the subsets have a best that is not known. The
    black line is the geometric mean of the batch sizes, by which N is called enough: its value at
    half of the trials is to be at most the dashed line.

    Beneath, where the tuned dimensions are known: the best of N over its limit at each batch size
    with its 90 % interval, and the trend (``analysis.fit.search_limits``). A trend that rises
    makes the critical batch size too small. Axes of the caller's get the first kind of panel alone.
    """
    curves = [curve for curve in data.curves if _budgets(curve)]
    if not curves:
        raise ResultsError("no budget check to draw", hint=_why_not(data.curves))
    trends = [search_trend(curve) if page.ax is None else None for curve in curves]
    heights = (1.8, 1.8) if any(trends) else (1.8,)
    axes, *beneath = page.panels([len(curves)], "curve", 1.9, *heights)
    sizes = [size for curve in curves for size, _ in _budgets(curve)]
    colours = log_colours(sizes)
    highest = [max(budget.fewest_ratio for _, budget in _budgets(curve)) for curve in curves]
    top = max(min(_TOP, ratio) for ratio in highest)
    for ax, curve, name in zip(axes, curves, names_of(curves), strict=True):
        trials = _draw_panel(ax, curve, colours)
        ax.set_ylim(1 - 0.03 * (top - 1), 1 + 1.12 * (max(top, 1.08) - 1))
        page.title(ax, f"{name}, N = {trials}", color=ink())
    if beneath:
        _draw_limits(beneath[0], trends, colours)
        for ax in beneath[0]:
            size_axis(ax, sizes, page.panel, 1.4)
    every = [ax for row in (axes, *beneath) for ax in row]
    for row in (axes, *beneath):
        name_once(row)
    unit = units(curve.example_unit for curve in curves)
    colour_bar(every, colours, f"batch size ({unit})")
    mean = "geometric mean; beneath, trend" if beneath else "geometric mean"
    handles = [
        entry(mean, color=ink(), linewidth=1.8),
        entry("half of the trials", color=faint(), linewidth=0.8),
        entry(f"{ENOUGH:.0%} more steps", color=faint(), linewidth=0.8, linestyle=DASHES),
    ]
    page.legend(axes, handles)
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a batch size and number of trials; ``over_limit`` and its trend are of all trials."""
    above = {curve.label: _over_limit(search_trend(curve)) for curve in data.curves}
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
            **above[curve.label].get(size, {}),
        }
        for curve in data.curves
        for size, budget in _budgets(curve)
        for n, expected in zip(budget.n, budget.expected, strict=True)
    ]
    return pd.DataFrame(rows, columns=[*_NAMES, *_OVER_LIMIT])


def _over_limit(trend: SearchTrend | None) -> dict[int, dict[str, float]]:
    """By batch size the best of N over its limit: value, interval and trend."""
    if trend is None:
        return {}
    sizes = [size for size, _ in trend.limits]
    return {
        size: dict(zip(_OVER_LIMIT, (*_inverse(limit), excess), strict=True))
        for (size, limit), excess in zip(trend.limits, trend.excess(sizes).tolist(), strict=True)
    }


def _inverse(limit: Interval) -> tuple[float, float, float]:
    """X(1) over its limit, with the ends of its interval; all three are known."""
    value, low, high = (float(end or np.nan) for end in limit.ends)
    return 1 / value, 1 / high, 1 / low


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


def _draw_panel(ax: Axes, curve: Curve, colours: ScalarMappable) -> int:
    """The number of trials, too."""
    sizes, budgets = zip(*_budgets(curve), strict=True)
    grid(ax)
    for size, budget in zip(sizes, budgets, strict=True):
        ax.plot(budget.shares, np.array(budget.expected) / budget.expected[-1], zorder=3,
                color=colours.to_rgba(np.array(size)), linewidth=0.9)  # fmt: skip
    trials = max(budget.first for budget in budgets)
    starts = [budget.shares[0] for budget in budgets]
    first, last = max(starts), min(budget.first for budget in budgets)
    if len(budgets) > 1 and first < last:
        n = np.linspace(first, last, 200)
        ratios = [np.interp(n, b.shares, b.expected) / b.expected[-1] for b in budgets]
        mean = np.exp(np.mean(np.log(ratios), axis=0))
        ax.plot(n, mean, color=ink(), linewidth=1.8, zorder=4)
    ax.axhline(1 + ENOUGH, color=faint(), linewidth=0.8, linestyle=DASHES, zorder=2)
    ax.axvline(trials / 2, color=faint(), linewidth=0.8, zorder=2)
    ax.set_xlim(min(*starts, trials / 2) - 0.02 * trials, trials * 1.01)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    _ratios(ax)
    ax.set_xlabel("trials n")
    ax.set_ylabel("expected best of n / best of N")
    return trials


def _ratios(ax: Axes) -> None:
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))


def _draw_limits(
    axes: Sequence[Axes], trends: Sequence[SearchTrend | None], colours: ScalarMappable
) -> None:
    """The best of N over its limit, a point a batch size, and the trend."""
    limits = [[(size, *_inverse(limit)) for size, limit in t.limits] if t else [] for t in trends]
    values = [value for each in limits for _, value, _, _ in each]
    above = [high for each in limits for _, _, _, high in each]
    top = min(max(above), 1 + _BARS * max(max(values) - 1, 0.01))
    for ax, each, trend in zip(axes, limits, trends, strict=True):
        grid(ax)
        for size, value, least, most in each:
            colour = colours.to_rgba(np.array(size))
            ax.plot([size, size], [least, most], color=colour, alpha=0.45, linewidth=0.9)
            ax.plot(size, value, marker="o", color=colour, zorder=5, markeredgewidth=0.5,
                    markeredgecolor=ground())  # fmt: skip
        if trend is not None:
            sizes = np.geomspace(trend.limits[0][0], trend.limits[-1][0], 200)
            ax.plot(sizes, trend.excess(sizes), color=ink(), linewidth=1.8, zorder=4)
        else:
            ax.text(0.5, 0.5, "limit not known", transform=ax.transAxes, ha="center",
                    fontsize="small")  # fmt: skip
        ax.set_ylim(1 - 0.04 * (top - 1), 1 + 1.04 * (top - 1))
        _ratios(ax)
        ax.set_xlabel("batch size")
        ax.set_ylabel("best of N / its limit")
