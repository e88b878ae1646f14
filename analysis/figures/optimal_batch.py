"""The batch size of least loss at fixed budgets, with its power law"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ink, visible
from analysis.figures.drawing.facets import styles_of
from analysis.figures.drawing.marks import entry
from analysis.figures.drawing.optimizer_styles import CurveStyle
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import grid, log10_axis
from analysis.fit.optimal_batch import OptimalBatch, Optimum, optimal_batches
from analysis.formatting import interval


def draw(data: FigureData, *, page: Page) -> Axes:
    """B_opt(D) of each curve: a point a budget with its 90 % interval, and the law with its band.

    An arrow points to where an interval is open, a hollow mark is the best tested batch size where
    the optimum lies outside of them.
    """
    made = optimal_batches(data.final_losses)
    ((main,),) = page.panels([1], "curve", 2.3, 2.1)
    optima = [each for optimal in made for each in optimal.optima]
    budgets = np.array([each.budget for each in optima])
    low, high = budgets.min() / 1.3, budgets.max() * 1.3
    grid(main)
    handles = []
    styles = styles_of(optimal.label for optimal in made)
    for optimal in made:
        style = styles[optimal.label]
        colour = visible(style.colour)
        if optimal.line is not None:
            x = np.geomspace(low, high, 100)
            at, under, over = optimal.law(x)
            main.fill_between(x, under, over, color=colour, alpha=0.18, linewidth=0, zorder=1)
            main.plot(x, at, color=colour, linestyle=style.line, zorder=2)
        for each in optimal.optima:
            _draw_optimum(main, each, style)
        name = _name(optimal, len(made))
        handles.append(entry(name, color=colour, marker=style.marker, linestyle=style.line))
    ends = [end for each in optima for end in each.batch_size.ends if end is not None]
    sizes = [*ends, *(each.best for each in optima)]
    bottom, top = min(sizes) / 1.6, max(sizes) * 1.6
    main.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, top))
    log10_axis(main.xaxis, low, high)
    log10_axis(main.yaxis, bottom, top)
    units = {optimal.unit for optimal in made}
    text = units.pop() if len(units) == 1 else "examples"
    page.name_axes([main], f"budget D ({text})", f"batch size of least loss ({text})")
    page.legend([main], handles)
    return main


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a curve and budget: the optimum with its interval, and the law of its curve."""
    rows = []
    for optimal in optimal_batches(data.final_losses):
        law = optimal.exponent.columns("exponent") | optimal.coefficient.columns("coefficient")
        for each in optimal.optima:
            at, under, over = (np.array([np.nan]),) * 3
            if optimal.line is not None:
                at, under, over = optimal.law([each.budget])
            rows.append(
                {
                    "curve": optimal.label,
                    "metric": optimal.metric,
                    "unit": optimal.unit,
                    "budget": each.budget,
                    "optimal_batch_size": each.batch_size.value,
                    "low": each.batch_size.low,
                    "high": each.batch_size.high,
                    "best_tested": each.best,
                    "loss": each.loss,
                    "tested": len(each.tested),
                    "counted": len(each.counted),
                    "law": float(at[0]),
                    "law_low": float(under[0]),
                    "law_high": float(over[0]),
                    **law,
                    "scatter": optimal.scatter,
                    "noise": optimal.noise,
                    "notes": "; ".join(optimal.notes),
                }
            )
    return pd.DataFrame(rows)


def _name(optimal: OptimalBatch, count: int) -> str:
    law = "no law"
    if optimal.exponent.value is not None:
        exponent = interval(*optimal.exponent.ends, number="{:.2f}".format)
        law = f"{optimal.coefficient.value:.2g} · D^{exponent}"
    return law if count == 1 else f"{optimal.label}: {law}"


def _draw_optimum(ax: Axes, each: Optimum, style: CurveStyle) -> None:
    value, low, high = each.batch_size.ends
    colour = visible(style.colour)
    at = each.best if value is None else value
    ends = (min(at, at if low is None else low), max(at, at if high is None else high))
    ax.plot([each.budget] * 2, ends, color=colour, linewidth=1.0, zorder=3)
    for end, known, caret in ((ends[0], low, "v"), (ends[1], high, "^")):
        if known is None:
            ax.plot(
                each.budget, end * (0.86 if caret == "v" else 1.16), marker=caret,
                color=faint(), markersize=3.5, linestyle="none", zorder=3,
            )  # fmt: skip
    ax.plot(
        each.budget, at, marker=style.marker, markersize=4.5, linestyle="none", zorder=4,
        color=colour, markerfacecolor="none" if value is None else colour,
        markeredgecolor=colour if value is None else ink(), markeredgewidth=0.6,
    )  # fmt: skip
