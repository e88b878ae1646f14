"""Learning rate and momentum of every trial, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from analysis.curves.curve import Curve
from analysis.curves.groups import labels
from analysis.curves.points import Point
from analysis.curves.runs import CLASSES, TrialOutcome
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, grey, ground, ink, tint, visible
from analysis.figures.drawing.legends import ABOVE, OUTCOMES, entry, shared_legend
from analysis.figures.drawing.page import COLUMN, Page, scaled, stroke
from analysis.figures.drawing.style import (
    BLUE,
    ORANGE,
    VERMILION,
    figure_width,
    given_axes,
    log10_axis,
    name_axes,
    plain,
)
from results.errors import ResultsError

_COLUMNS = 4
"""Panels in a row where no width is given."""
_PANEL, _LEAST = 1.45, 1.3
"""Inches of a panel: each side, and the width that it needs."""

Limits = tuple[float, float]


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
    """A panel a batch size of each curve that has a momentum: learning rate against 1 - momentum.

    Along the grey lines the effective learning rate, learning rate / (1 - momentum), is the same.
    The figure needs ``keep: off``: else most trials are dominated, and not known.
    """
    curves = with_momentum(data.curves)
    names = [f"{name}, B =" for name in labels([curve.group for curve in curves])]
    blocks = [
        [(f"{name if len(curves) > 1 else 'batch size'} {plain(point.batch_size)}", point)
         for point in curve.points if has_momentum(point)]
        for curve, name in zip(curves, names, strict=True)
    ]  # fmt: skip
    return draw_blocks(blocks, ax=ax, page=page or Page())


def draw_blocks(
    blocks: Sequence[Sequence[tuple[str, Point]]],
    *,
    page: Page,
    ax: Axes | None = None,
    columns: int = 0,
) -> Axes:
    """A panel of each title and point, over the same axes; each block begins a row.

    ``columns``: panels in a row, else what leaves few places empty.

    Raises:
        ResultsError: several panels, and one pair of axes to draw them on.
    """
    panels = [panel for block in blocks for panel in block]
    if all(len(block) == 1 for block in blocks):
        blocks, columns = [panels], 0
    axes = (
        _grid([len(block) for block in blocks], columns, page)
        if ax is None
        else given_axes(ax, len(panels), "batch size")
    )
    trials = [trial for _, point in panels for trial in _placed(point)]
    rates = np.array([trial.learning_rate for trial in trials], dtype=float)
    rest = 1 - np.array([trial.momentum for trial in trials], dtype=float)
    x_limits = rates.min() / 1.5, rates.max() * 1.5
    y_limits = rest.min() / 1.4, min(rest.max() * 1.4, 1.6)
    for panel_ax, (title, point) in zip(axes, panels, strict=True):
        _draw_panel(panel_ax, point, x_limits, y_limits, named=panel_ax is axes[0])
        panel_ax.set_title(title, color=ink(), fontsize="small", pad=3)
    size = {} if ax is not None else {"fontsize": "medium"}
    name_axes(axes, "learning rate", "1 - momentum", given=ax is not None, **size)
    outcomes = {trial.became for _, point in panels for trial in point.trial_outcomes}
    handles = [
        entry(OUTCOMES.get(name, name), **_marker(name))
        for name in (*CLASSES, "best")
        if name in outcomes or name == "best"
    ]
    handles.append(entry("equal effective learning rate", color=grey("#cfcfcf"), linewidth=0.8))
    shared_legend(
        axes, handles, None if ax is None else ABOVE, fontsize="small", columnspacing=0.8,
        handletextpad=0.2, ncols=3 if figure_width(axes[0]) > 1.5 * COLUMN else 2,
    )  # fmt: skip
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a trial that ran, also of curves without a momentum."""
    rows = [
        {"curve": curve.label, **row}
        for curve in data.curves
        for point in curve.points
        for row in rows_of(point)
    ]
    names = ("curve", "batch_size", "trial", "became", "steps", "learning_rate", "momentum")
    return pd.DataFrame(rows, columns=[*names, "effective_learning_rate", "best"])


def rows_of(point: Point) -> list[dict[str, Any]]:
    """A row a trial of one batch size that ran."""
    return [
        {
            "batch_size": point.batch_size,
            "trial": trial.trial,
            "became": trial.became,
            "steps": trial.steps,
            "learning_rate": trial.learning_rate,
            "momentum": trial.momentum,
            "effective_learning_rate": trial.effective_learning_rate,
            "best": trial is _best(point),
        }
        for trial in point.trial_outcomes
    ]


def has_momentum(point: Point) -> bool:
    """Whether any of its trials has a place in this figure."""
    return bool(_placed(point))


def _placed(point: Point) -> list[TrialOutcome]:
    return [t for t in point.trial_outcomes if t.effective_learning_rate and t.learning_rate]


def _best(point: Point) -> TrialOutcome | None:
    """Of all that ran: those beyond the N of the curve too."""
    hits = [trial for trial in point.trial_outcomes if trial.steps is not None]
    return min(hits, key=lambda trial: trial.steps or 0.0, default=None)


def _marker(name: str) -> dict[str, Any]:
    """The marks of a class of trials, in sizes of the style sheet."""
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


def _grid(counts: Sequence[int], fixed: int, page: Page) -> list[Axes]:
    """Axes of all panels; so many of each block, which begins a row. ``fixed``: panels in a row,
    if the page is wide enough."""
    need = _PANEL * (fixed or min(max(counts), _COLUMNS)) + 0.5
    most = min(fixed or max(counts), max(1, int((page.usable(need) - 0.4) / _LEAST)))
    # As few columns as take no more rows: fewer empty places.
    rows_of_columns = {n: sum(-(-count // n) for count in counts) for n in range(1, most + 1)}
    columns = min(n for n, rows in rows_of_columns.items() if rows == rows_of_columns[most])
    used = [min(columns, count - start) for count in counts for start in range(0, count, columns)]
    figure, made = plt.subplots(
        len(used), columns, sharex=True, sharey=True, squeeze=False, layout="constrained",
        figsize=page.size(need, _PANEL * len(used) + 0.95),
    )  # fmt: skip
    for row, count, beneath in zip(made, used, [*used[1:], 0], strict=True):
        for unused in row[count:]:
            figure.delaxes(unused)
        # Where the rows beneath are shorter, the last panel of a column keeps its numbers.
        for ax in row[beneath:count]:
            ax.tick_params(labelbottom=True)
    return [ax for row, count in zip(made, used, strict=True) for ax in row[:count]]


def _draw_panel(ax: Axes, point: Point, x_limits: Limits, y_limits: Limits, *, named: bool) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(x_limits)
    ax.set_ylim(y_limits)
    placed = _placed(point)
    _draw_equal_rates(ax, x_limits, y_limits, placed if named else [])
    classes = [(name, [t for t in placed if t.became == name]) for name in CLASSES]
    for name, trials in (*classes, ("best", [t for t in placed if t is _best(point)])):
        rates = np.array([trial.learning_rate for trial in trials], dtype=float)
        rest = 1 - np.array([trial.momentum for trial in trials], dtype=float)
        ax.plot(rates, rest, linestyle="none", **scaled(_marker(name)))
    log10_axis(ax.xaxis, *x_limits, most=3)
    log10_axis(ax.yaxis, *y_limits, most=4)


def _draw_equal_rates(
    ax: Axes, x_limits: Limits, y_limits: Limits, trials: Sequence[TrialOutcome]
) -> None:
    """A line a decade of the effective learning rate; over the ``trials`` of the panel, if given,
    with its rate where it begins, or further up where none of them is."""
    trial_x = _fractions([trial.learning_rate for trial in trials], x_limits)
    trial_y = _fractions([1 - (trial.momentum or 0.0) for trial in trials], y_limits)
    first, last = np.log10(x_limits[0] / y_limits[1]), np.log10(x_limits[1] / y_limits[0])
    for power in range(int(np.ceil(first)), int(np.floor(last)) + 1):
        rate = 10.0**power
        low, high = max(x_limits[0], rate * y_limits[0]), min(x_limits[1], rate * y_limits[1])
        if high <= low * 1.02:
            continue
        ax.plot([low, high], [low / rate, high / rate], color=grey("#cfcfcf"),
                linewidth=stroke(0.6), zorder=1)  # fmt: skip
        for at in np.geomspace(low, high, 12)[:-1] if trials else ():
            (x,), (y,) = _fractions([at], x_limits), _fractions([at / rate], y_limits)
            width = 0.06 * len(f"{rate:g}") + 0.04
            near = (np.abs(trial_x - x - width / 2) < width / 2 + 0.04) & (
                np.abs(trial_y - y - 0.06) < 0.11
            )
            if near.any() or x + width > 1 or y > 0.86:
                continue
            ax.annotate(
                f"{rate:g}", (at, at / rate), xytext=(2, 2), textcoords="offset points",
                fontsize="x-small", color=ink(), zorder=7,
                path_effects=[withStroke(linewidth=stroke(1.6), foreground=ground())],
            )  # fmt: skip
            break


def _fractions(values: Sequence[float | None], limits: Limits) -> np.ndarray:
    """Where values lie between the limits of a logarithmic axis, 0 to 1; (n,)."""
    logs = np.log(np.array(values, dtype=float))
    return np.asarray((logs - np.log(limits[0])) / np.log(limits[1] / limits[0]))


MOST = 4
"""Batch sizes in a row: the smallest, the largest, and between them evenly."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of panels: some batch sizes of a curve."""

    curve: Curve
    name: str
    """The name that distinguishes it from the other rows."""
    sizes: Sequence[int]

    @property
    def points(self) -> list[Point]:
        """Those of ``sizes``."""
        return [point for point in self.curve.points if point.batch_size in self.sizes]


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


def draw_rows(rows: Sequence[Row], ax: Axes | None, page: Page | None) -> Axes:
    """A panel a batch size of each row."""
    blocks = [
        [(_title(row, point, place), point) for place, point in enumerate(row.points)]
        for row in rows
        if row.points
    ]
    columns = max(map(len, blocks))
    return draw_blocks(blocks, ax=ax, page=page or Page(), columns=columns)


def tabulate_rows(rows: Sequence[Row]) -> pd.DataFrame:
    """A row a trial of each panel."""
    return pd.DataFrame(
        [
            {"curve": row.curve.label, "row": row.name, **values}
            for row in rows
            for point in row.points
            for values in rows_of(point)
        ]
    )


def _title(row: Row, point: Point, place: int) -> str:
    """The row's name is above its first panel, and may be as wide as all."""
    size = f"B = {plain(point.batch_size)}"
    return f"{row.name}\n{size}" if row.name and not place else size
