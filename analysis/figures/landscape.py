"""Learning rate against steps to target, of every trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable

from analysis.curves.curve import Curve, names_of
from analysis.curves.runs import TrialOutcome
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, ink
from analysis.figures.drawing.marks import entry
from analysis.figures.drawing.page import Page, name_once
from analysis.figures.drawing.style import colour_bar, grid, log2_axis, log10_axis, log_colours
from analysis.formatting import units
from results.errors import ResultsError

_ABOVE = {"not reached": 0.05, "infeasible": 0.11}
"""How far above the steps, in parts of the panel, trials stand that did not reach the target."""
_MARKERS = {"not reached": "_", "infeasible": "x"}


def draw(data: FigureData, *, page: Page) -> Axes:
    """A panel a curve: each trial's learning rate (divided by 1 - momentum where the optimizer has
    that meaning) against its steps to target, in the colour of its batch size.

    Ringed points are the best of each batch size; lines join the fewest steps of each octave of
    learning rates. Above stand trials that did not reach the target within their budget (dashes)
    and those that diverged (crosses): to the left of the best they were too slow, to the right too
    fast. Trials that were cut off are left out.
    """
    frame = numbers(data)
    hits = frame.dropna(subset="steps")["curve"].unique()
    if not len(hits):
        raise ResultsError(
            "no learning rates to draw", hint="this figure needs trials of a search, not steps"
        )
    curves = [curve for curve in data.curves if curve.label in hits]
    frame = frame[frame["curve"].isin(hits)]
    colours = log_colours(frame["batch_size"])
    (axes,) = page.panels([len(curves)], "curve", 1.9, 1.9)
    names = names_of(curves)
    for ax, curve, name in zip(axes, curves, names, strict=True):
        _draw_panel(ax, frame[frame["curve"] == curve.label], colours)
        page.title(ax, name, color=ink())
    name_once(axes)
    unit = units(curve.example_unit for curve in curves)
    colour_bar(axes, colours, f"batch size ({unit})")
    outcomes = {*frame["became"]}
    best = {"markeredgecolor": ink(), "markeredgewidth": 0.9}
    handles = [
        entry("target reached", marker="o", markersize=2.6, color=faint()),
        entry("best", marker="o", markersize=5.5, color=faint(), **best),
        entry("fewest steps by octave", color=faint(), linewidth=0.8),
        *(entry(name, marker=marker, markersize=3.5, color=faint(), markeredgewidth=0.8)
          for name, marker in _MARKERS.items() if name in outcomes),
    ]  # fmt: skip
    page.legend(axes, handles)
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a trial with a learning rate: its values in the figure, and whether it is the best."""
    frame = rated(data.curves)
    return frame[frame["became"] != "dominated"].reset_index(drop=True)


def rated(curves: Sequence[Curve]) -> pd.DataFrame:
    """A row a trial with a learning rate, also of those that were cut off."""
    rows = [
        (curve.label, point.batch_size, each.trial, each.became, rate,
         each.momentum is not None, each.steps)
        for curve in curves
        for point in curve.points
        for each in point.trial_outcomes
        if (rate := _rate(each)) is not None
    ]  # fmt: skip
    names = ["curve", "batch_size", "trial", "became", "rate", "divided_by_one_minus_momentum"]
    frame = pd.DataFrame(rows, columns=[*names, "steps"]).astype({"steps": float})
    hits = frame.dropna(subset="steps").groupby(["curve", "batch_size"])["steps"]
    return frame.assign(best=frame.index.isin(hits.idxmin()))


def _rate(trial: TrialOutcome) -> float | None:
    if trial.learning_rate is None or not trial.learning_rate > 0:
        return None
    return trial.learning_rate if trial.momentum is None else trial.effective_learning_rate


def _draw_panel(ax: Axes, trials: pd.DataFrame, colours: ScalarMappable) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log", base=2)
    low, high = trials["steps"].min() / 1.4, trials["steps"].max() * 1.4
    above = max((up for name, up in _ABOVE.items() if (trials["became"] == name).any()), default=0)
    ax.set_xlim(trials["rate"].min() / 1.4, trials["rate"].max() * 1.4)
    ax.set_ylim(low, high * (high / low) ** (above + 0.03 if above else 0))
    log10_axis(ax.xaxis, *ax.get_xlim(), most=4)
    log2_axis(ax.yaxis, low, high, most=6)
    grid(ax)
    if above:
        ax.axhline(high, color=faint(), linewidth=0.5, zorder=1)
    sized: Any = {"cmap": colours.cmap, "norm": colours.norm}
    for name, marker in _MARKERS.items():
        each = trials[trials["became"] == name]
        y = [high * (high / low) ** _ABOVE[name]] * len(each)
        ax.scatter(each["rate"], y, s=9, c=each["batch_size"], marker=marker, linewidths=0.7,
                   zorder=3, **sized)  # fmt: skip
    hits, best = trials[trials["steps"].notna()], trials[trials["best"]]
    for size, each in hits.groupby("batch_size"):
        lowest = each.loc[each.groupby(np.floor(np.log2(each["rate"])))["steps"].idxmin()]
        ax.plot(lowest["rate"], lowest["steps"], color=colours.to_rgba(np.array(size)),
                linewidth=0.8, zorder=2)  # fmt: skip
    ax.scatter(hits["rate"], hits["steps"], s=7, c=hits["batch_size"], linewidths=0, zorder=4,
               **sized)  # fmt: skip
    ax.scatter(best["rate"], best["steps"], s=30, c=best["batch_size"], edgecolors=ink(),
               linewidths=0.9, zorder=5, **sized)  # fmt: skip
    divided = trials["divided_by_one_minus_momentum"].any()
    ax.set_xlabel("effective learning rate" if divided else "learning rate")
    ax.set_ylabel("steps to target")
