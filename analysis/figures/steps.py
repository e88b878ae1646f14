"""Steps to target against batch size: the curves, their regimes and how sure each is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import SubplotSpec
from matplotlib.lines import Line2D

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.figures.drawing import key, legend_place, marks, strips
from analysis.figures.drawing.colours import ground, ink
from analysis.figures.drawing.facets import (
    MANY,
    Pairs,
    batch_size,
    caption,
    facets,
    names,
    to_target,
)
from analysis.figures.drawing.page import COLUMN, context, room, stroke, tall, unit, width
from analysis.figures.drawing.style import (
    Look,
    grid,
    log2_axis,
    look,
    plain,
)
from analysis.figures.drawing.text_fit import apart, within
from analysis.fit.reference_lines import perfect_examples
from analysis.fit.regimes import Regimes
from results.errors import ResultsError

_PANEL = 2.35
_STRIP = 0.22
_LEAST = 2.7
"""Inches of a panel across."""
_SMALL = 1.8, 2.3
"""Inches of one of many panels: its height, and across."""
_KEY = 1.7
"""Inches of an entry of the legend."""
_AXIS = 0.75
"""Inches of the names and numbers beside a panel."""
_FULL = 3
"""Curves whose legend has room within the axes."""
_BESIDE = 0.24
"""The part of a panel's width that names beside its strips may take."""


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """Log₂ against log₂; a panel for each workload, data set and target.

    Points are the fewest steps to target with the error bar of a best of N; lines the fitted
    knees; dashed lines perfect scaling, fitted over its range. Beneath, a strip a curve has its
    regimes (hatched where merely bounded), the intervals of their ends and the critical batch
    size with its interval. A single curve is shaded in its panel instead.
    """
    curves, regimes = shown.curves, shown.regimes
    panels = facets(curves, regimes)
    with context():
        if ax is not None:
            if len(panels) > 1:
                raise ResultsError(
                    "several workloads or targets do not go on one pair of axes",
                    hint="choose one with --where, or leave ax out",
                )
            _alone(ax, panels[0])
            return ax
        # A training algorithm looks the same in every panel.
        order = list(dict.fromkeys(text for pairs in panels for text in names(pairs)))
        return sheet(panels, [[look(order.index(text)) for text in names(p)] for p in panels])


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a point: steps, error bar, N, the fit there, and whether it was left out."""
    frames = []
    for curve, found in zip(shown.curves, shown.regimes, strict=True):
        frame = curve.to_frame()
        frame.insert(0, "curve", curve.label)
        frame["target"] = None if curve.target is None else str(curve.target)
        frame["fitted"] = None if found is None else found.steps(frame["batch_size"])
        frame["left_out"] = frame["batch_size"].isin(found.left_out if found else ())
        frame["censored"] = frame["steps"].isna()
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def sheet(panels: Sequence[Pairs], looks: Sequence[Sequence[Look]]) -> Axes:
    """A figure of these panels, each curve with its look; the axes of the first of them."""
    need = COLUMN * min(len(panels), 2)
    many = len(panels) > MANY
    high, least = _SMALL if many else (_PANEL, _LEAST)
    across = min(len(panels), max(1, int(room(need) / least + 0.01)))
    down = -(-len(panels) // across)
    lows = [_low(panels[i * across : (i + 1) * across]) for i in range(down)]
    curves = [curve for pairs in panels for curve, _ in pairs]
    handles = marks.explained(curves, [found for pairs in panels for _, found in pairs])
    wide = room(need) / across
    said = [caption(p, within((wide - _AXIS) * unit(), "small")) for p in panels]
    # Legends above full axes, and long titles, take their room from the figure, not the panels.
    legend = sum(0.16 * rows for rows in _rows(handles))
    above = [(len(pairs) + 1, _columns(pairs, wide)) for pairs in panels]
    legend += down * key.ROW * max(-(-many // columns) if columns else 0 for many, columns in above)
    legend += down * 0.13 * max(0, max(text.count("\n") for text in said) - 1)
    figure = plt.figure(
        figsize=(width(need), tall(((high + 0.62) * down + sum(lows) + legend) * unit())),
        layout="constrained",
    )
    outer = figure.add_gridspec(down, across, height_ratios=[high + 0.62 + low for low in lows])
    both = [
        _with_strip(
            figure, outer[i // across, i % across], pairs, looks[i], (high, lows[i // across]), wide
        )
        for i, pairs in enumerate(panels)
    ]
    if handles:
        figure.legend(
            handles=handles, loc="outside lower center", ncols=max(2, int(room(need) / _KEY)),
            fontsize="small", columnspacing=1.2, handletextpad=0.5,
        )  # fmt: skip
    for i, ((top, _), text) in enumerate(zip(both, said, strict=True)):
        key.title(top, text)
        if i % across:
            top.set_ylabel("")
    figure.draw_without_rendering()  # lays out: headings and legends must know their room
    for (top, beneath), pairs in zip(both, panels, strict=True):
        inner = top.get_legend()
        if inner is not None and not _columns(pairs, wide):
            free: Any = legend_place.place(inner)  # the name of a place
            inner.set_loc(free or "upper right")
        _headings(beneath, [found for _, found in pairs])
    return both[0][0]


def _low(panels: Sequence[Pairs]) -> float:
    """Inches of the strips of a row of panels."""
    most = max(len(pairs) for pairs in panels)
    return _STRIP * most + 0.16 if most > 1 else 0.3


def _with_strip(
    figure: Figure,
    spec: SubplotSpec,
    pairs: Pairs,
    looks: Sequence[Look],
    heights: tuple[float, float],
    wide: float,
) -> tuple[Axes, Axes]:
    # What is between the two is a part of the whole figure, however many rows that has.
    inner = spec.subgridspec(2, 1, height_ratios=heights, hspace=0.02 / spec.get_gridspec().nrows)
    ax = figure.add_subplot(inner[0])
    beneath = figure.add_subplot(inner[1], sharex=ax)
    _panel(ax, pairs, looks, wide)
    _legend(ax, pairs, looks, wide)
    ax.tick_params(labelbottom=False)
    fits = within(_BESIDE * wide * unit(), "small")
    rows = apart(names(pairs), lambda name: all(map(fits, name.split(", "))))
    strips.strips(beneath, [found for _, found in pairs], rows, looks)
    beneath.set_ylim(beneath.get_ylim()[0], beneath.get_ylim()[1] + 0.45)
    beneath.set_xlabel(batch_size(pairs))
    return ax, beneath


def _headings(beneath: Axes, regimes: Sequence[Regimes | None]) -> None:
    for row, found in enumerate(reversed(regimes)):
        if found is not None and all(one is None for one in regimes[: len(regimes) - 1 - row]):
            strips.headings(beneath, found, row)


def _panel(ax: Axes, pairs: Pairs, looks: Sequence[Look], wide: float = COLUMN) -> None:
    curves, regimes = [curve for curve, _ in pairs], [found for _, found in pairs]
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    _limits(ax, curves, wide)
    grid(ax)
    if len(pairs) == 1 and regimes[0] is not None:
        strips.shade(ax, regimes[0])
    for place, (curve, found, one) in enumerate(zip(curves, regimes, looks, strict=True)):
        if found is not None:
            _line(ax, curve, found, one)
        marks.points(ax, curve, found, one, place=place)
    marks.censored(ax, curves, looks, ax.get_ylim()[1] / 1.5)
    ax.set_ylabel(to_target("steps", pairs))


def _alone(ax: Axes, pairs: Pairs) -> None:
    """One panel on axes of the caller's, with all that the strips would have said in it."""
    looks = [look(i) for i in range(len(pairs))]
    curves, regimes = [curve for curve, _ in pairs], [found for _, found in pairs]
    _panel(ax, pairs, looks)
    strips.criticals(ax, regimes, looks)
    _legend(ax, pairs, looks, COLUMN, marks.explained(curves, regimes, strips=False))
    key.title(ax, caption(pairs))
    ax.set_xlabel(batch_size(pairs))


def _limits(ax: Axes, curves: Sequence[Curve], wide: float) -> None:
    """``wide``: inches of the style sheet's type that the panel has across, its numbers too."""
    sizes = [size for curve in curves for size in curve.batch_sizes]
    steps = [p.steps for curve in curves for p in curve.points if p.steps] or [1.0]
    bars = [x for c in curves for p in c.points if p.bar for x in p.bar if np.isfinite(x) and x > 0]
    again = [p.repeats for c in curves for p in c.points if p.repeats is not None]
    bars += [x for each in again for x in each.interval if np.isfinite(x)]
    low, high = min(steps + bars), max(steps + bars)
    headroom = 4.0 if any(curve.censored for curve in curves) else 1.5
    ax.set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
    ax.set_ylim(low / 1.7, high * headroom)
    # As many numbers as have room beside each other.
    most = (wide - _AXIS) / (0.06 * len(plain(max(sizes))) + 0.05)
    log2_axis(ax.xaxis, min(sizes), max(sizes), most=max(2, min(7, int(most))))
    log2_axis(ax.yaxis, low / 1.7, high * 1.2, most=8)


def _line(ax: Axes, curve: Curve, found: Regimes, one: Look) -> None:
    x = np.geomspace(*found.fitted_over, 256)
    ax.plot(x, found.steps(x), color=one.colour, linestyle=one.line, zorder=4)
    fitted = perfect_examples(curve, found)
    if fitted is not None:
        # Down to somewhat under the plateau, where the gap to the curve has been seen.
        end = min(max(x), fitted / (0.55 * min(found.steps(x))))
        ax.plot(
            [min(x), end], [fitted / min(x), fitted / end], color=one.colour, linewidth=stroke(0.8),
            linestyle=(0, (4, 3)), alpha=0.75, zorder=2,
        )  # fmt: skip


def _columns(pairs: Pairs, wide: float) -> int:
    """``wide``: inches of the style sheet's type that the panel has across."""
    return key.columns(names(pairs), (wide - _AXIS) * unit(), _FULL)


def _rows(handles: Sequence[Artist]) -> list[int]:
    """Lines of text in each row of two entries of the legend beneath."""
    lines = [1 + str(handle.get_label()).count("\n") for handle in handles]
    return [max(lines[i : i + 2]) for i in range(0, len(lines), 2)]


def _legend(
    ax: Axes, pairs: Pairs, looks: Sequence[Look], wide: float, more: Sequence[Artist] = ()
) -> None:
    texts = apart(names(pairs), within((wide - _AXIS - key.HANDLE) * unit()))
    handles = [
        Line2D(
            [],
            [],
            color=one.colour,
            linestyle=one.line if found else "none",
            label=text,
            marker=one.marker,
            markeredgecolor=ground(),
            markeredgewidth=stroke(0.5),
        )
        for (_, found), one, text in zip(pairs, looks, texts, strict=True)
    ]
    if any(found is not None and perfect_examples(curve, found) for curve, found in pairs):
        handles.append(
            Line2D(
                [],
                [],
                color=ink(),
                linewidth=stroke(0.8),
                linestyle=(0, (4, 3)),
                label="perfect scaling",
            )
        )
    columns = _columns(pairs, wide)
    if columns:
        key.over(ax, [*handles, *more], columns)
    else:
        ax.legend(handles=[*handles, *more], loc="upper right")
