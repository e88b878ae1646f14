"""Steps to target against batch size: the curves, their regimes and their intervals."""

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

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.figures.drawing import legends, marks, regime_strips
from analysis.figures.drawing.colours import ground
from analysis.figures.drawing.optimizer_styles import style_numbers
from analysis.figures.drawing.page import COLUMN, Page, stroke, unit
from analysis.figures.drawing.panels import (
    MANY,
    Pairs,
    axis_to_target,
    caption,
    curve_names,
    examples_name,
    facets,
)
from analysis.figures.drawing.style import (
    PERFECT_DASHES,
    CurveStyle,
    curve_style,
    given_axes,
    grid,
    log2_axis,
    plain,
)
from analysis.figures.drawing.text_fit import distinct, within
from analysis.fit.reference_lines import perfect_examples
from analysis.fit.regimes import Regimes

_PANEL, _LEAST = 2.35, 2.7
"""Inches of a panel: its height, and the width that it needs."""
_SMALL = 1.8, 2.3
"""The same of one of many."""
_STRIP = 0.22
_NAMES = 0.62
"""Inches of the title and the names of the axes."""
_ENTRY = 1.7
"""Inches of an entry of the legend."""
_AXIS = 0.75
"""Inches of the names and numbers beside a panel."""
_FULL = 3
"""Curves whose legend fits within the axes."""
_BESIDE = 0.24
"""The part of a panel's width that names beside its strips may take."""


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
    """Log₂ against log₂; a panel for each workload, data set and target.

    Points are the fewest steps to target with the error bar of a best of N; lines the fitted
    knees; dashed lines perfect scaling, fitted over its range. Beneath, a strip for each curve has
    its regimes (hatched where merely bounded), the intervals of their ends and the critical batch
    size with its interval. A single curve is shaded in its panel instead. A diamond on the curve
    is the batch size of fewest examples, where smaller ones need more.
    """
    panels = facets(data.pairs)
    names = [curve_names(pairs) for pairs in panels]
    # A training algorithm has the same style in every panel.
    numbers = style_numbers(name for each in names for name in each)
    styles = [[curve_style(numbers[name]) for name in each] for each in names]
    if ax is None:
        return draw_panels(panels, styles, page or Page())
    given_axes(ax, len(panels), "panel")
    _draw_alone(ax, panels[0], styles[0])
    return ax


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a point: steps, error bar, N, and the knee and the slope of the convex fit there."""
    frames = []
    for curve, fit in data.pairs:
        frame = curve.to_frame()
        frame.insert(0, "curve", curve.label)
        frame["target"] = None if curve.target is None else str(curve.target)
        frame["fitted"] = None if fit is None else fit.steps(frame["batch_size"])
        frame["slope"] = None if fit is None else fit.slopes_at(frame["batch_size"])
        frame["censored"] = frame["steps"].isna()
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def draw_panels(
    panels: Sequence[Pairs], styles: Sequence[Sequence[CurveStyle]], page: Page
) -> Axes:
    """A figure of these panels, each curve in its style; the axes of the first of them."""
    need = COLUMN * min(len(panels), 2)
    usable = page.usable(need)
    height, least = _SMALL if len(panels) > MANY else (_PANEL, _LEAST)
    columns = min(len(panels), max(1, int(usable / least + 0.01)))
    rows = -(-len(panels) // columns)
    width = usable / columns
    strip_heights = [
        max(_strip_height(panel, width) for panel in panels[i * columns : (i + 1) * columns])
        for i in range(rows)
    ]
    pairs = [pair for panel in panels for pair in panel]
    handles = regime_strips.entries([curve for curve, _ in pairs], [fit for _, fit in pairs])
    captions = [caption(p, within((width - _AXIS) * unit(), "small")) for p in panels]
    # Legends above full axes, and long titles, make the figure taller, not the panels smaller.
    lines = [1 + str(handle.get_label()).count("\n") for handle in handles]
    extra = sum(0.16 * max(lines[i : i + 2]) for i in range(0, len(lines), 2))
    extra += rows * 0.13 * max(0, max(text.count("\n") for text in captions) - 1)
    total = (height + _NAMES) * rows + sum(strip_heights) + extra
    figure = plt.figure(figsize=page.size(need, total), layout="constrained")
    outer = figure.add_gridspec(
        rows, columns, height_ratios=[height + _NAMES + strip for strip in strip_heights]
    )
    axes = [
        _draw_with_strips(
            figure, outer[i // columns, i % columns], panel, styles[i],
            (height, strip_heights[i // columns]), width,
        )
        for i, panel in enumerate(panels)
    ]  # fmt: skip
    if handles:
        figure.legend(
            handles=handles, loc="outside lower center", ncols=max(2, int(usable / _ENTRY)),
            fontsize="small", columnspacing=1.2, handletextpad=0.5,
        )  # fmt: skip
    for i, ((top, _), text) in enumerate(zip(axes, captions, strict=True)):
        legends.title(top, text)
        if i % columns:
            top.set_ylabel("")
    figure.draw_without_rendering()  # lays out, which the places of legends depend on
    for top, _ in axes:
        legend = top.get_legend()
        if legend is not None:
            location: Any = legends.free_location(legend)
            legend.set_loc(location or "upper right")
    return axes[0][0]


def _strip_height(pairs: Pairs, width: float) -> float:
    """Inches of the strips of a panel that is so many inches wide."""
    each = _STRIP if _named_beside(pairs, width) else _STRIP * regime_strips.NAMED
    return each * len(pairs) + 0.08


def _named_beside(pairs: Pairs, width: float) -> bool:
    """Whether the names of its few curves fit beside their strips, and in a legend."""
    fits = within(_BESIDE * width * unit(), "small")
    names = curve_names(pairs)
    return all(map(fits, names)) and not _legend_columns(pairs, width)


def _draw_with_strips(
    figure: Figure,
    spec: SubplotSpec,
    pairs: Pairs,
    styles: Sequence[CurveStyle],
    heights: tuple[float, float],
    width: float,
) -> tuple[Axes, Axes]:
    # The space between the two is a part of the whole figure, however many rows that has.
    inner = spec.subgridspec(2, 1, height_ratios=heights, hspace=0.02 / spec.get_gridspec().nrows)
    ax = figure.add_subplot(inner[0])
    beneath = figure.add_subplot(inner[1], sharex=ax)
    _draw_panel(ax, pairs, styles, width)
    ax.tick_params(labelbottom=False)
    names, handle = curve_names(pairs), None
    if _named_beside(pairs, width):
        _draw_legend(ax, pairs, styles, width)
    else:
        handle = legends.HANDLE / (width - _AXIS)
        names = distinct(names, within((1 - 1.2 * handle) * (width - _AXIS) * unit(), "small"))
    regime_strips.strips(beneath, [fit for _, fit in pairs], names, styles, handle=handle)
    beneath.set_xlabel(f"batch size ({examples_name(pairs)})")
    return ax, beneath


def _draw_panel(
    ax: Axes, pairs: Pairs, styles: Sequence[CurveStyle], width: float = COLUMN
) -> None:
    curves, fits = [curve for curve, _ in pairs], [fit for _, fit in pairs]
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    _set_limits(ax, curves, width)
    grid(ax)
    if len(pairs) == 1 and fits[0] is not None:
        regime_strips.shade(ax, fits[0])
    for place, ((curve, fit), style) in enumerate(zip(pairs, styles, strict=True)):
        if fit is not None:
            _draw_fit(ax, curve, fit, style)
            marks.best_batch_size(ax, fit, style)
        marks.points(ax, curve, style, place=place)
    marks.censored(ax, curves, styles, ax.get_ylim()[1] / 1.5)
    ax.set_ylabel(axis_to_target("steps", pairs))


def _draw_alone(ax: Axes, pairs: Pairs, styles: Sequence[CurveStyle]) -> None:
    """One panel on the caller's axes, with all that the strips would have said in it."""
    curves, fits = [curve for curve, _ in pairs], [fit for _, fit in pairs]
    _draw_panel(ax, pairs, styles)
    marks.criticals(ax, fits, styles)
    _draw_legend(ax, pairs, styles, COLUMN, regime_strips.entries(curves, fits, strips=False))
    legends.title(ax, caption(pairs))
    ax.set_xlabel(f"batch size ({examples_name(pairs)})")


def _set_limits(ax: Axes, curves: Sequence[Curve], width: float) -> None:
    """``width``: inches of the style sheet's type that the panel has, with its numbers."""
    sizes = [size for curve in curves for size in curve.batch_sizes]
    points = [point for curve in curves for point in curve.points]
    steps = [point.steps for point in points if point.steps] or [1.0]
    steps += [x for p in points if p.bar for x in p.bar if np.isfinite(x) and x > 0]
    steps += [x for p in points if p.repeats for x in p.repeats.interval if np.isfinite(x)]
    low, high = min(steps), max(steps)
    ax.set_xlim(min(sizes) / 1.5, max(sizes) * 1.5)
    ax.set_ylim(low / 1.7, high * (4.0 if any(curve.censored for curve in curves) else 1.5))
    # As many numbers as fit beside each other.
    most = (width - _AXIS) / (0.06 * len(plain(max(sizes))) + 0.05)
    log2_axis(ax.xaxis, min(sizes), max(sizes), most=max(2, min(7, int(most))))
    log2_axis(ax.yaxis, low / 1.7, high * 1.2, most=8)


def _draw_fit(ax: Axes, curve: Curve, fit: Regimes, style: CurveStyle) -> None:
    x = np.geomspace(*fit.fitted_over, 256)
    ax.plot(x, fit.steps(x), color=style.colour, linestyle=style.line, zorder=4)
    perfect = perfect_examples(curve, fit)
    if perfect is not None:
        # Down to somewhat under the plateau, where the gap to the curve is visible.
        end = min(max(x), perfect / (0.55 * min(fit.steps(x))))
        ax.plot(
            [min(x), end], [perfect / min(x), perfect / end], color=style.colour,
            linewidth=stroke(0.8), linestyle=PERFECT_DASHES, alpha=0.75, zorder=2,
        )  # fmt: skip


def _legend_columns(pairs: Pairs, width: float) -> int:
    """``width``: inches of the style sheet's type that the panel has."""
    return legends.columns_above(curve_names(pairs), (width - _AXIS) * unit(), _FULL)


def _draw_legend(
    ax: Axes,
    pairs: Pairs,
    styles: Sequence[CurveStyle],
    width: float,
    more: Sequence[Artist] = (),
) -> None:
    fits = within((width - _AXIS - legends.HANDLE) * unit())
    names = distinct(curve_names(pairs), fits)
    handles: list[Artist] = [
        legends.entry(
            name, color=style.colour, linestyle=style.line if fit else "none",
            marker=style.marker, markeredgecolor=ground(), markeredgewidth=0.5,
        )
        for (_, fit), style, name in zip(pairs, styles, names, strict=True)
    ]  # fmt: skip
    columns = _legend_columns(pairs, width)
    if columns:
        legends.under_title(ax, [*handles, *more], columns)
    else:
        ax.legend(handles=[*handles, *more], loc="upper right")
