"""Learning rate and momentum of every trial, and what became of it (Shallue et al. 2019, figs 9
and 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from analysis.curves.groups import labels
from analysis.curves.points import Point
from analysis.curves.runs import CLASSES, TrialOutcome
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, grey, ground, ink, seen, tint
from analysis.figures.drawing.page import COLUMN, context, room, scaled, stroke, tall, unit, width
from analysis.figures.drawing.style import ABOVE, LOOKS, log10_axis, plain
from results.counts import count
from results.errors import ResultsError

_BLUE, _VERMILION, _ORANGE = LOOKS[0].colour, LOOKS[1].colour, LOOKS[4].colour
_ACROSS = 4
"""Panels in a row where no width is asked for."""
_SIZE = 1.45
"""Inches of a panel, each way."""
_LEAST = 1.3
"""Inches of a panel across."""


def _look(name: str) -> dict[str, Any]:
    """How the marks of a class look."""
    looks: dict[str, dict[str, Any]] = {
        "reached": {"marker": "o", "markersize": 3.4, "markerfacecolor": seen(_BLUE),
                    "markeredgecolor": ground(), "markeredgewidth": 0.3, "zorder": 5},
        "not reached": {"marker": "o", "markersize": 3.0, "markerfacecolor": ground(),
                        "markeredgecolor": tint(seen(_BLUE), 0.7), "markeredgewidth": 0.6,
                        "zorder": 4},
        "dominated": {"marker": ".", "markersize": 4.0, "markerfacecolor": faint(),
                      "markeredgecolor": "none", "zorder": 3},
        "infeasible": {"marker": "x", "markersize": 3.2, "markeredgecolor": seen(_VERMILION),
                       "markeredgewidth": 0.8, "zorder": 4},
        "best": {"marker": "*", "markersize": 9, "markerfacecolor": seen(_ORANGE),
                 "markeredgecolor": ink(), "markeredgewidth": 0.6, "zorder": 6},
    }  # fmt: skip
    return scaled(looks[name])


_WORDS = {
    "reached": "target reached",
    "not reached": "not reached",
    "dominated": "dominated: not known",
    "infeasible": "infeasible",
    "best": "best",
}


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A panel a batch size of each curve that has a momentum: learning rate against 1 - momentum.

    Along the grey lines the effective learning rate, learning rate / (1 - momentum), is the same.
    The figure wants ``keep: off``: else most trials are dominated, and not known.
    """
    placed = [curve for curve in shown.curves if any(_placed(point) for point in curve.points)]
    if not placed:
        raise ResultsError(
            "no trials with a learning rate and a momentum to draw",
            hint="this figure needs a search that tunes both: optimizer momentum or nesterov",
        )
    texts = labels([curve.group for curve in placed])
    blocks = [
        [
            (
                f"{text}, B = {_size(point)}" if len(placed) > 1 else f"batch size {_size(point)}",
                point,
            )
            for point in curve.points
            if _placed(point)
        ]
        for curve, text in zip(placed, texts, strict=True)
    ]
    return draw_blocks(blocks, ax=ax)


def draw_blocks(
    blocks: Sequence[Sequence[tuple[str, Point]]], *, ax: Axes | None = None, across: int = 0
) -> Axes:
    """A panel of each title and point, over the same axes; each block begins a row.

    ``across``: panels in a row, else what leaves few places empty.

    Raises:
        ResultsError: several panels, and one pair of axes to draw them on.
    """
    panels = [panel for block in blocks for panel in block]
    if all(len(block) == 1 for block in blocks):
        blocks, across = [panels], 0
    with context():
        if ax is not None:
            if len(panels) > 1:
                several = count(len(panels), "batch size", "do")
                raise ResultsError(
                    f"{several} not go on one pair of axes in this figure",
                    hint='choose one with --where "batch_size = 64", or leave ax out',
                )
            axes, rows = [ax], [[ax]]
        else:
            axes, rows = _grid([len(block) for block in blocks], across)
        limits = _limits([one for _, point in panels for one in _placed(point)])
        for one, (text, point) in zip(axes, panels, strict=True):
            _panel(one, point, text, limits, named=one is axes[0])
        _name(axes, rows, alone=ax is not None)
        _legend(axes[0], [point for _, point in panels], alone=ax is not None)
    return axes[0]


def has_momentum(point: Point) -> bool:
    """Whether any of its trials has a place in this figure."""
    return bool(_placed(point))


def _size(point: Point) -> str:
    return plain(point.batch_size)


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a trial that ran, also of curves without a momentum."""
    rows = [
        {"curve": curve.label, **row}
        for curve in shown.curves
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
            "trial": one.trial,
            "became": one.became,
            "steps": one.steps,
            "learning_rate": one.learning_rate,
            "momentum": one.momentum,
            "effective_learning_rate": _effective(one),
            "best": one is _best(point),
        }
        for one in point.trial_outcomes
    ]


def _placed(point: Point) -> list[TrialOutcome]:
    return [
        one for one in point.trial_outcomes if _effective(one) is not None and one.learning_rate
    ]


def _effective(one: TrialOutcome) -> float | None:
    if one.learning_rate is None or one.momentum is None or one.momentum >= 1:
        return None
    return one.learning_rate / (1 - one.momentum)


def _best(point: Point) -> TrialOutcome | None:
    """Of all that ran: those beyond the N of the curve too."""
    hits = [one for one in point.trial_outcomes if one.steps is not None]
    return min(hits, key=lambda one: one.steps or 0.0, default=None)


def _grid(counts: Sequence[int], fixed: int) -> tuple[list[Axes], list[list[Axes]]]:
    """Axes of all panels, and by row; of each block so many, and it begins a row. ``fixed``:
    panels in a row, if there is room."""
    need = _SIZE * (fixed or min(max(counts), _ACROSS)) + 0.5
    most = min(fixed or max(counts), max(1, int((room(need) - 0.4) / _LEAST)))
    # As few across as take no more rows: fewer empty places.
    needed = {n: sum(-(-count // n) for count in counts) for n in range(1, most + 1)}
    across = min(n for n, rows in needed.items() if rows == needed[most])
    down = [-(-count // across) for count in counts]
    figure, all_ = plt.subplots(
        sum(down), across, sharex=True, sharey=True, squeeze=False, layout="constrained",
        figsize=(width(need), tall((_SIZE * sum(down) + 0.95) * unit())),
    )  # fmt: skip
    rows: list[list[Axes]] = []
    for number in counts:
        for start in range(0, number, across):
            row = list(all_[len(rows)])
            used = min(across, number - start)
            for spare in row[used:]:
                figure.delaxes(spare)
            rows.append(row[:used])
    return [one for row in rows for one in row], rows


def _limits(trials: Sequence[TrialOutcome]) -> tuple[tuple[float, float], tuple[float, float]]:
    rates = np.array([one.learning_rate for one in trials], dtype=float)
    rest = 1 - np.array([one.momentum for one in trials], dtype=float)
    return (rates.min() / 1.5, rates.max() * 1.5), (rest.min() / 1.4, min(rest.max() * 1.4, 1.6))


def _panel(
    ax: Axes,
    point: Point,
    text: str,
    limits: tuple[tuple[float, float], tuple[float, float]],
    *,
    named: bool,
) -> None:
    across, up = limits
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(across)
    ax.set_ylim(up)
    _equal_rates(ax, across, up, _placed(point) if named else None)
    for name in CLASSES:
        mine = [one for one in _placed(point) if one.became == name]
        _marks(ax, mine, name)
    _marks(ax, [one for one in _placed(point) if one is _best(point)], "best")
    log10_axis(ax.xaxis, *across, most=3)
    log10_axis(ax.yaxis, *up, most=4)
    ax.set_title(text, color=ink(), fontsize="small", pad=3)


def _marks(ax: Axes, trials: Sequence[TrialOutcome], name: str) -> None:
    rest = [1 - one.momentum for one in trials if one.momentum is not None]
    ax.plot([one.learning_rate for one in trials], rest, linestyle="none", **_look(name))  # type: ignore[arg-type]


def _equal_rates(
    ax: Axes,
    across: tuple[float, float],
    up: tuple[float, float],
    trials: Sequence[TrialOutcome] | None,
) -> None:
    """A line a decade of the effective learning rate; over the ``trials`` of the panel, if given,
    with its rate where it begins, or further up where none of them is."""
    marks = (
        _parts([one.learning_rate for one in trials or ()], across),
        _parts([1 - (one.momentum or 0.0) for one in trials or ()], up),
    )
    first, last = np.log10(across[0] / up[1]), np.log10(across[1] / up[0])
    for power in range(int(np.ceil(first)), int(np.floor(last)) + 1):
        rate = 10.0**power
        low, high = max(across[0], rate * up[0]), min(across[1], rate * up[1])
        if high <= low * 1.02:
            continue
        ax.plot(
            [low, high],
            [low / rate, high / rate],
            color=grey("#cfcfcf"),
            linewidth=stroke(0.6),
            zorder=1,
        )
        for at in np.geomspace(low, high, 12)[:-1] if trials else ():
            (x,), (y,) = _parts([at], across), _parts([at / rate], up)
            wide = 0.06 * len(f"{rate:g}") + 0.04
            near = (np.abs(marks[0] - x - wide / 2) < wide / 2 + 0.04) & (
                np.abs(marks[1] - y - 0.06) < 0.11
            )
            if near.any() or x + wide > 1 or y > 0.86:
                continue
            ax.annotate(
                f"{rate:g}", (at, at / rate), xytext=(2, 2), textcoords="offset points",
                fontsize="x-small", color=ink(), zorder=7,
                path_effects=[withStroke(linewidth=stroke(1.6), foreground=ground())],
            )  # fmt: skip
            break


def _parts(values: Sequence[float | None], ends: tuple[float, float]) -> np.ndarray:
    """Where values lie between the ends of a logarithmic axis, 0 to 1; (n,)."""
    logs = np.log(np.array(values, dtype=float))
    return np.asarray((logs - np.log(ends[0])) / np.log(ends[1] / ends[0]))


def _name(axes: Sequence[Axes], rows: Sequence[Sequence[Axes]], *, alone: bool) -> None:
    if alone:
        axes[0].set_xlabel("learning rate")
        axes[0].set_ylabel("1 - momentum")
        return
    figure = axes[0].get_figure(root=True)
    assert isinstance(figure, Figure)
    figure.supxlabel("learning rate", fontsize="medium")
    figure.supylabel("1 - momentum", fontsize="medium")
    # Where the rows beneath are shorter, the last panel of a column keeps its numbers.
    for row, under in zip(rows, [*rows[1:], []], strict=True):
        for one in row[len(under) :]:
            one.tick_params(labelbottom=True)


def _legend(ax: Axes, points: Sequence[Point], *, alone: bool) -> None:
    there = {one.became for point in points for one in point.trial_outcomes}
    names = [*(name for name in CLASSES if name in there), "best"]
    handles = [
        Line2D([], [], linestyle="none", label=_WORDS[name], **_look(name)) for name in names
    ]
    handles.append(
        Line2D(
            [],
            [],
            color=grey("#cfcfcf"),
            linewidth=stroke(0.8),
            label="equal effective learning rate",
        )
    )
    if alone:
        ax.legend(handles=handles, **ABOVE)
        return
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    wide = figure.get_size_inches()[0] / unit() > 1.5 * COLUMN
    figure.legend(
        handles=handles, loc="outside upper center", ncols=3 if wide else 2,
        fontsize="small", columnspacing=0.8, handletextpad=0.2,
    )  # fmt: skip
