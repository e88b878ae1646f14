"""Steps to target against batch size: the curves, their regimes and their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis.figure_data import FigureData
from analysis.figures.drawing import marks, regime_strips
from analysis.figures.drawing.colours import ink
from analysis.figures.drawing.facets import (
    Pair,
    Pairs,
    caption,
    curve_names,
    facets,
    styles_of,
    to_target,
    unit_of,
)
from analysis.figures.drawing.optimizer_styles import CurveStyle
from analysis.figures.drawing.page import Page, name_once
from analysis.figures.drawing.style import PERFECT_DASHES, grid, log2_axis, size_axis
from analysis.fit.reference_lines import perfect_examples

_PANEL = 2.3
"""Inches of a panel: the width that it needs; its height is the same."""


def draw(data: FigureData, *, page: Page) -> Axes:
    """Log₂ against log₂; a panel for each workload, data set and target.

    Points are the fewest steps to target with the error bar of a best of N; lines the fitted
    knees; dashed lines perfect scaling, fitted over its range. Beneath, a strip for each curve has
    its regimes (hatched where merely bounded), the intervals of their ends and the critical batch
    size with its interval. A single curve is shaded in its panel instead. A diamond on the curve
    is the batch size of fewest examples, where smaller ones need more.
    """
    panels = facets(data.pairs)
    styles = styles_of(name for pairs in panels for name in curve_names(pairs))
    return draw_panels(panels, styles, page)


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


def draw_panels(panels: Sequence[Pairs], styles: dict[str, CurveStyle], page: Page) -> Axes:
    """A figure of these panels, each curve in the style of its name; the first one's axes."""
    strips = regime_strips.HEIGHT * (max(map(len, panels)) + 0.3)
    heights = (_PANEL,) if page.ax is not None else (_PANEL, strips)
    axes, *beneath = page.panels([len(panels)], "panel", _PANEL, *heights)
    for i, (ax, pairs) in enumerate(zip(axes, panels, strict=True)):
        names, fits = curve_names(pairs), [fit for _, fit in pairs]
        own = [styles[name] for name in names]
        lowest = ax
        _draw_panel(ax, pairs, own)
        if beneath:
            lowest = beneath[0][i]
            lowest.sharex(ax)
            ax.tick_params(labelbottom=False)
            regime_strips.strips(lowest, fits, names, own)
        else:
            marks.criticals(ax, fits, own)
        size_axis(lowest, [s for curve, _ in pairs for s in curve.batch_sizes], page.panel)
        lowest.set_xlabel(f"batch size ({unit_of(pairs)})")
        page.title(ax, caption(pairs))
    if not page.ax:
        name_once(axes)
    page.legend(axes, _handles(panels, styles, strips=bool(beneath)))
    return axes[0]


def _draw_panel(ax: Axes, pairs: Pairs, styles: Sequence[CurveStyle]) -> None:
    curves, fits = [curve for curve, _ in pairs], [fit for _, fit in pairs]
    points = [point for curve in curves for point in curve.points]
    steps = [point.steps for point in points if point.steps] or [1.0]
    steps += [x for p in points if p.bar for x in p.bar if np.isfinite(x) and x > 0]
    steps += [x for p in points if p.repeats for x in p.repeats.interval if np.isfinite(x)]
    low, high = min(steps) / 1.7, max(steps)
    top = high * (4.0 if any(curve.censored for curve in curves) else 1.5)
    ax.set_yscale("log", base=2)
    ax.set_ylim(low, top)
    log2_axis(ax.yaxis, low, high * 1.2, most=8)
    grid(ax)
    if len(pairs) == 1 and fits[0] is not None:
        regime_strips.shade(ax, fits[0])
    for place, (pair, style) in enumerate(zip(pairs, styles, strict=True)):
        _draw_fit(ax, pair, style)
        marks.best_batch_size(ax, pair[1], style)
        marks.points(ax, pair[0], style, place=place)
    marks.censored(ax, curves, styles, top / 1.5)
    ax.set_ylabel(to_target("steps", pairs))


def _draw_fit(ax: Axes, pair: Pair, style: CurveStyle) -> None:
    curve, fit = pair
    if fit is None:
        return
    x = np.geomspace(*fit.fitted_over, 256)
    ax.plot(x, fit.steps(x), color=style.colour, linestyle=style.line, zorder=4)
    perfect = perfect_examples(curve, fit)
    if perfect is not None:
        # Down to somewhat under the plateau, where the gap to the curve is visible.
        ends = np.array([x[0], min(x[-1], perfect / (0.55 * min(fit.steps(x))))])
        ax.plot(ends, perfect / ends, color=style.colour, linewidth=0.8, alpha=0.75, zorder=2,
                linestyle=PERFECT_DASHES)  # fmt: skip


def _handles(
    panels: Sequence[Pairs], styles: dict[str, CurveStyle], *, strips: bool
) -> list[Artist]:
    """Legend entries for the curves and for the marks that are drawn."""
    pairs = [pair for panel in panels for pair in panel]
    names = [name for panel in panels for name in curve_names(panel)]
    fitted = {name for name, (_, fit) in zip(names, pairs, strict=True) if fit is not None}
    fits = [fit for _, fit in pairs if fit is not None]
    points = [point for curve, _ in pairs for point in curve.points]
    perfect: Any = {"color": ink(), "linewidth": 0.8, "linestyle": PERFECT_DASHES}
    shaded = strips or any(len(panel) == 1 for panel in panels)
    return [
        *(marks.curve_entry(n, s, fitted=n in fitted) for n, s in styles.items()),
        *([marks.entry("line of perfect scaling", **perfect)]
          if any(perfect_examples(curve, fit) for curve, fit in pairs) else []),
        *(regime_strips.regime_entries(fits) if shaded else []),
        *regime_strips.interval_entries(fits, strips=strips),
        *marks.best_batch_size_entry(fits),
        *marks.bars(points),
        *([marks.not_reached_entry()] if any(curve.censored for curve, _ in pairs) else []),
        *marks.repeats(points),
        *marks.rings(edge for point in points for edge in point.edges),
    ]  # fmt: skip
