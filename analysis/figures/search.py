"""Learning rate and momentum of every trial, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from analysis.curves.curve import Curve, names_of
from analysis.curves.points import Point
from analysis.curves.runs import CLASSES
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, grey, ground, ink, tint, visible
from analysis.figures.drawing.marks import OUTCOMES, entry
from analysis.figures.drawing.page import Page
from analysis.figures.drawing.style import BLUE, ORANGE, VERMILION, log10_axis, number
from results.errors import ResultsError

_PANEL = 1.4
"""Inches of a panel: the width that it needs, and its height."""

Limits = tuple[float, float]


def draw(data: FigureData, *, page: Page) -> Axes:
    """A panel a batch size of each curve that has a momentum: learning rate against 1 - momentum.

    Along the grey lines, one a decade, the effective learning rate, learning rate /
    (1 - momentum), is the same. The figure needs ``keep: off``: else most trials are dominated, and
    not known.
    """
    curves = with_momentum(data.curves)
    names = [f"{name}, B =" for name in names_of(curves)]
    blocks = [
        [(f"{name if len(curves) > 1 else 'batch size'} {number(point.batch_size)}", point)
         for point in curve.points if has_momentum(point)]
        for curve, name in zip(curves, names, strict=True)
    ]  # fmt: skip
    return _draw_blocks(blocks, page, across=4)


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a trial that ran, also of curves without a momentum."""
    rows = [
        {"curve": curve.label, **row}
        for curve in data.curves
        for point in curve.points
        for row in _rows(point)
    ]
    names = ("curve", "batch_size", "trial", "became", "steps", "learning_rate", "momentum")
    return pd.DataFrame(rows, columns=[*names, "effective_learning_rate", "best"])


def has_momentum(point: Point) -> bool:
    """Whether any of its trials has a place in this figure."""
    return any(trial.effective_learning_rate and trial.learning_rate
               for trial in point.trial_outcomes)  # fmt: skip


def _rows(point: Point) -> list[dict[str, Any]]:
    """A row a trial of one batch size that ran; the best of all, those beyond the N of the curve
    too."""
    hits = [trial for trial in point.trial_outcomes if trial.steps is not None]
    best = min(hits, key=lambda trial: trial.steps or 0.0, default=None)
    names = ("trial", "became", "steps", "learning_rate", "momentum", "effective_learning_rate")
    return [
        {"batch_size": point.batch_size}
        | {name: getattr(trial, name) for name in names}
        | {"best": trial is best}
        for trial in point.trial_outcomes
    ]


def _placed(point: Point) -> pd.DataFrame:
    """The trials that have a place in the figure; ``rest`` is 1 - momentum."""
    rates = ["learning_rate", "effective_learning_rate"]
    trials = pd.DataFrame(_rows(point)).astype(dict.fromkeys([*rates, "momentum"], float))
    return trials[trials[rates].gt(0).all(axis=1)].assign(rest=1 - trials["momentum"].fillna(0))


def _draw_blocks(blocks: Sequence[Sequence[tuple[str, Point]]], page: Page, *, across: int) -> Axes:
    """A panel of each title and point, over the same axes; each block begins a row.

    Raises:
        ResultsError: several panels, and one pair of axes to draw them on.
    """
    panels = [panel for block in blocks for panel in block]
    counts = [len(block) for block in blocks]
    if max(counts) == 1:
        counts, across = [len(panels)], 4
    (axes,) = page.panels(
        counts, "batch size", _PANEL, _PANEL, sharex=True, sharey=True, across=across
    )
    placed = [_placed(point) for _, point in panels]
    every = pd.concat(placed)
    x_limits = every["learning_rate"].min() / 1.5, every["learning_rate"].max() * 1.5
    y_limits = every["rest"].min() / 1.4, min(every["rest"].max() * 1.4, 1.6)
    for ax, (title, _), trials in zip(axes, panels, placed, strict=True):
        ax.set(xscale="log", yscale="log", xlim=x_limits, ylim=y_limits)
        _draw_panel(ax, trials, x_limits, y_limits)
        page.title(ax, title, color=ink())
    page.name_axes(axes, "learning rate", "1 - momentum")
    outcomes = {trial.became for _, point in panels for trial in point.trial_outcomes} | {"best"}
    handles = [
        entry(OUTCOMES.get(name, name), **_marker(name))
        for name in (*CLASSES, "best")
        if name in outcomes
    ]
    handles.append(entry("equal effective learning rate", color=grey("#cfcfcf"), linewidth=0.8))
    page.legend(axes, handles)
    return axes[0]


def _marker(name: str) -> dict[str, Any]:
    """The marks of a class of trials, in sizes of the style content."""
    markers: dict[str, dict[str, Any]] = {
        "reached": {"marker": "o", "markersize": 3.4, "markerfacecolor": visible(BLUE),
                    "markeredgecolor": ground(), "markeredgewidth": 0.3, "zorder": 5},
        "not reached": {"marker": "o", "markersize": 3.0, "markerfacecolor": ground(),
                        "markeredgecolor": tint(visible(BLUE), 0.7), "markeredgewidth": 0.6,
                        "zorder": 4},
        "dominated": {"marker": ".", "markersize": 4.0, "markerfacecolor": faint(),
                      "markeredgecolor": "none", "zorder": 3},
        "infeasible": {"marker": "x", "markersize": 3.2, "markeredgecolor": visible(VERMILION),
                       "markeredgewidth": 0.8, "zorder": 4},
        "best": {"marker": "*", "markersize": 9, "markerfacecolor": visible(ORANGE),
                 "markeredgecolor": ink(), "markeredgewidth": 0.6, "zorder": 6},
    }  # fmt: skip
    return markers[name]


def _draw_panel(ax: Axes, trials: pd.DataFrame, x_limits: Limits, y_limits: Limits) -> None:
    first, last = np.log10(x_limits[0] / y_limits[1]), np.log10(x_limits[1] / y_limits[0])
    for power in range(int(np.ceil(first)), int(np.floor(last)) + 1):
        rate = 10.0**power
        ends = np.clip(np.array(y_limits) * rate, *x_limits)
        if ends[1] > ends[0] * 1.02:
            ax.plot(ends, ends / rate, color=grey("#cfcfcf"), linewidth=0.6, zorder=1)
    classes = [(name, trials[trials["became"] == name]) for name in CLASSES]
    for name, each in (*classes, ("best", trials[trials["best"]])):
        ax.plot(each["learning_rate"], each["rest"], linestyle="none", **_marker(name))
    log10_axis(ax.xaxis, *x_limits, most=3)
    log10_axis(ax.yaxis, *y_limits, most=4)


MOST = 4
"""Batch sizes in a row: the smallest, the largest, and between them evenly."""
Row = tuple[Curve, str, Sequence[Point]]
"""A curve, the name that distinguishes its row of panels from the others, and its batch sizes."""


def row_of(curve: Curve, name: str, sizes: Sequence[int]) -> Row:
    """A row of panels of some batch sizes of a curve."""
    return curve, name, [point for point in curve.points if point.batch_size in sizes]


def with_momentum(curves: Sequence[Curve]) -> list[Curve]:
    """The curves with a momentum.

    Raises:
        ResultsError: there is none.
    """
    chosen = [curve for curve in curves if any(map(has_momentum, curve.points))]
    if not chosen:
        raise ResultsError(
            "no trials with a learning rate and a momentum to draw",
            hint="this figure needs a search that tunes both: optimizer momentum or nesterov",
        )
    return chosen


def shared_sizes(curves: Sequence[Curve]) -> list[int]:
    """At most ``MOST`` of the batch sizes that all ``curves`` have."""
    of_curves = [{p.batch_size for p in c.points if has_momentum(p)} for c in curves]
    sizes = sorted(set.intersection(*of_curves))
    if len(sizes) <= MOST:
        return sizes
    return [sizes[i] for i in np.round(np.linspace(0, len(sizes) - 1, MOST)).astype(int)]


def draw_rows(rows: Sequence[Row], page: Page) -> Axes:
    """A panel a batch size of each row, which is named in its titles."""
    blocks = [
        [("\n".join(filter(None, (name, f"B = {number(p.batch_size)}"))), p) for p in points]
        for _, name, points in rows
        if points
    ]
    return _draw_blocks(blocks, page, across=max(map(len, blocks)))


def tabulate_rows(rows: Sequence[Row]) -> pd.DataFrame:
    """A row a trial of each panel."""
    return pd.DataFrame(
        [
            {"curve": curve.label, "row": name, **values}
            for curve, name, points in rows
            for point in points
            for values in _rows(point)
        ]
    )
