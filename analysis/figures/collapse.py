"""Curves of many workloads laid on one another: steps over the fewest, batch size over the critical
one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import seaborn
from matplotlib.axes import Axes

from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import ground, ink
from analysis.figures.drawing.facets import curve_names, styles_of
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import PERFECT_DASHES, grid, log10_axis
from results.errors import ResultsError


def draw(data: FigureData, *, page: Page) -> Axes:
    """S / S_min against B / B_crit, for each curve of which both are known.

    The line is 1 + B_crit / B (McCandlish et al. 2018), the dashed lines are its two ends: perfect
    scaling and the plateau, on which each curve is laid. A curve that bends more sharply than the
    line lies below it at 1.
    """
    frame = numbers(data)
    if frame.empty:
        raise ResultsError(
            "no curve has both a critical batch size and a fewest number of steps",
            hint="both ends of a curve must be level: `batchscale regimes` says which are bounded",
        )
    ((ax,),) = page.panels([1], "panel", 2.6, 2.4)
    styles = styles_of(frame["curve"].unique())
    seaborn.scatterplot(
        frame, x="relative_batch_size", y="relative_steps", hue="curve", style="curve", ax=ax,
        palette={name: style.colour for name, style in styles.items()}, legend=False, s=16,
        markers={name: style.marker for name, style in styles.items()}, linewidth=0.4,
        edgecolor=ground(), zorder=4,
    )  # fmt: skip
    x, y = frame["relative_batch_size"], frame["relative_steps"]
    low, high, top = x.min() / 1.5, x.max() * 1.5, max(y.max(), 1 + 1 / x.min()) * 1.5
    sizes = np.geomspace(low, high, 200)
    ax.plot(sizes, 1 + 1 / sizes, color=ink(), zorder=3)
    for steps in (1 / sizes, np.ones_like(sizes)):
        ax.plot(sizes, steps, color=ink(), linewidth=0.8, linestyle=PERFECT_DASHES, zorder=2)
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(y.min() / 1.5, top))
    log10_axis(ax.xaxis, low, high)
    log10_axis(ax.yaxis, *ax.get_ylim())
    grid(ax)
    page.name_axes([ax], "batch size / critical batch size", "steps / fewest steps")
    handles = [marks.curve_entry(name, style, fitted=False) for name, style in styles.items()]
    handles.append(marks.entry("1 + critical batch size / batch size", color=ink()))
    handles.append(marks.entry("perfect scaling, and the plateau", color=ink(), linewidth=0.8,
                               linestyle=PERFECT_DASHES))  # fmt: skip
    page.legend([ax], handles)
    return ax


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a batch size that reached the target, of each curve of which both are known."""
    rows = [
        {
            "curve": name,
            "target": None if curve.target is None else str(curve.target),
            "batch_size": point.batch_size,
            "steps": point.steps,
            "critical_batch_size": critical,
            "min_steps": fewest,
            "relative_batch_size": point.batch_size / critical,
            "relative_steps": point.steps / fewest,
        }
        for (curve, fit), name in zip(data.pairs, curve_names(data.pairs), strict=True)
        if fit and (critical := fit.critical_batch_size.value) and (fewest := fit.min_steps.value)
        for point in curve.points
        if point.steps
    ]
    return pd.DataFrame(rows, columns=None if rows else ["curve"])
