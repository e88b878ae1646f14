"""Steps against examples to target: what a larger batch saves in steps and costs in examples.

After McCandlish et al. 2018 (arXiv:1812.06162), figure 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, grey, ground
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
from analysis.figures.drawing.style import PERFECT_DASHES, grid, log10_axis, number
from analysis.fit.regimes import Regimes
from results.errors import ResultsError

_PANEL = 2.3
"""Inches of a panel: the width that it needs; its height is the same."""
_NUMBERS = 5
"""Batch sizes that are named beside the points of a single curve."""


def draw(data: FigureData, *, page: Page) -> Axes:
    """A panel for each workload and target: steps to target against examples to target, B times
    as many.

    Along the fitted frontier the batch size grows from the right end of the plateau of examples
    to that of steps: its asymptotes are the least examples E_min (vertical) and the least steps
    S_min (level), dashed where their intervals are known. The large mark is the critical batch
    size: at k = 1 it costs twice the least of both. Grey lines have equal batch sizes. A
    diamond is the batch size of fewest examples, where smaller ones need more.
    """
    panels = facets(data.pairs)
    if not any(point.steps for curve in data.curves for point in curve.points):
        raise ResultsError("nothing reached the target", hint="take an easier --target")
    styles = styles_of(name for pairs in panels for name in curve_names(pairs))
    (axes,) = page.panels([len(panels)], "panel", _PANEL, _PANEL)
    for ax, pairs in zip(axes, panels, strict=True):
        _set_limits(ax, pairs)
        _draw_equal_sizes(ax, pairs)
        for pair, name in zip(pairs, curve_names(pairs), strict=True):
            _draw_curve(ax, pair, styles[name])
            if len(pairs) == 1:
                _name_sizes(ax, pair[0])
        ax.set_xlabel(to_target(unit_of(pairs), pairs))
        ax.set_ylabel(to_target("steps", pairs))
        page.title(ax, caption(pairs))
    name_once(axes)
    page.legend(axes, _handles(panels, styles))
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a batch size: steps and examples, the frontier there, and where its ends lie."""
    frames = []
    for curve, fit in data.pairs:
        sizes = np.array(curve.batch_sizes, dtype=float)
        steps = np.array([point.steps or np.nan for point in curve.points])
        frame = pd.DataFrame(
            {
                "curve": curve.label,
                "target": None if curve.target is None else str(curve.target),
                "batch_size": curve.batch_sizes,
                "examples": np.array([point.examples or np.nan for point in curve.points]),
                "steps": steps,
                "fitted_examples": sizes * fit.steps(sizes) if fit and not curve.grows else np.nan,
                "fitted_steps": fit.steps(sizes) if fit else np.nan,
            }
        )
        for name in ("min_examples", "min_steps", "critical_batch_size"):
            frame[name] = None if fit is None else getattr(fit, name).value
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _hits(curve: Curve) -> list[tuple[int, float, float]]:
    """Batch sizes that reached the target, with their examples and steps."""
    points = [point for point in curve.points if point.steps]
    return [(point.batch_size, point.examples or 0.0, point.steps or 0.0) for point in points]


def _set_limits(ax: Axes, pairs: Pairs) -> None:
    """With space at the left and below for the asymptotes, which lie beyond all points."""
    _, examples, steps = zip(*(hit for curve, _ in pairs for hit in _hits(curve)), strict=True)
    fits = [fit for _, fit in pairs if fit]
    least = [fit.min_steps.value for fit in fits if fit.min_steps.value]
    fewest = [fit.min_examples.value for fit in fits if fit.min_examples.value]
    ax.set(xscale="log", yscale="log")
    ax.set_xlim(min([*examples, *fewest]) / 1.5, max(examples) * 1.6)
    ax.set_ylim(min([*steps, *least]) / 1.6, max(steps) * 1.6)
    log10_axis(ax.xaxis, *ax.get_xlim(), most=5)
    log10_axis(ax.yaxis, *ax.get_ylim(), most=6)
    grid(ax)


def _draw_equal_sizes(ax: Axes, pairs: Pairs) -> None:
    """A faint line every eight-fold batch size, named where it leaves the panel at the right."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    sizes = [size for curve, _ in pairs for size in curve.batch_sizes]
    first, last = np.log2(min(sizes)), np.log2(max(sizes))
    for power in range(int(np.ceil(first)), int(np.floor(last)) + 1, 3 if last - first > 6 else 1):
        size = 2.0**power
        ends = np.clip(np.array([low, high]) * size, left, right)
        if ends[1] <= ends[0]:
            continue
        ax.plot(ends, ends / size, color=grey("#dcdcdc"), linewidth=0.6, zorder=1)
        if ends[1] == right and len(pairs) > 1:
            ax.annotate(f"B = {number(size)}", (right, right / size), xytext=(2, 0),
                        textcoords="offset points", va="center", fontsize="x-small",
                        color=faint(), annotation_clip=False)  # fmt: skip


def _draw_curve(ax: Axes, pair: Pair, style: CurveStyle) -> None:
    """Points, the fitted curve and its asymptotes; of batch sizes that grow only the least steps,
    since their examples are not those of the fit."""
    curve, fit = pair
    for _, examples, steps in _hits(curve):
        marks.dots(ax, [examples], [steps], style, markersize=3.6)
    if fit is None:
        return
    marks.best_batch_size(ax, fit, style, over_examples=True)
    if not curve.grows:
        sizes = np.geomspace(*fit.fitted_over, 256)
        ax.plot(sizes * fit.steps(sizes), fit.steps(sizes), color=style.colour,
                linestyle=style.line, zorder=4)  # fmt: skip
    dashes: Any = {"color": style.colour, "linewidth": 0.7, "linestyle": PERFECT_DASHES}
    if fit.min_steps.value is not None:
        ax.axhline(fit.min_steps.value, zorder=2, **dashes)
    if fit.min_examples.value is not None:
        ax.axvline(fit.min_examples.value, zorder=2, **dashes)
    critical = _critical(curve, fit)
    if critical is not None:
        steps = float(fit.steps([critical])[0])
        marks.dots(ax, [critical * steps], [steps], style, markersize=7.5, color=ground(),
                   markeredgecolor=style.colour, markeredgewidth=1.3, zorder=6)  # fmt: skip


def _critical(curve: Curve, fit: Regimes | None) -> float | None:
    """The critical batch size; None where it is not known, or batch sizes grow."""
    return None if fit is None or curve.grows else fit.critical_batch_size.value


def _name_sizes(ax: Axes, curve: Curve) -> None:
    """Some batch sizes beside their points, on the side that the curve bends away from."""
    hits = _hits(curve)
    every = -(-len(hits) // _NUMBERS)
    for size, examples, steps in hits[::every]:
        ax.annotate(number(size), (examples, steps), xytext=(4, 3), textcoords="offset points",
                    fontsize="x-small", color=faint(), zorder=7)  # fmt: skip


def _handles(panels: Sequence[Pairs], styles: dict[str, CurveStyle]) -> list[Artist]:
    """The critical batch sizes are in brackets, in a figure of one panel: a number beside a mark
    may lie nearer to that of another curve."""
    pairs = [pair for panel in panels for pair in panel]
    named = dict(zip([n for panel in panels for n in curve_names(panel)], pairs, strict=True))
    bracketed = len(panels) == 1
    handles: list[Artist] = []
    for name, style in styles.items():
        critical = _critical(*named[name])
        text = f"{name} ({_rounded(critical)})" if critical and bracketed else name
        handles.append(marks.curve_entry(text, style, fitted=named[name][1] is not None))
    fits = [fit for _, fit in pairs if fit]
    if any(_critical(curve, fit) for curve, fit in pairs):
        text = "critical batch size" + " (in brackets)" * bracketed
        handles.append(marks.entry(text, marker="o", markersize=7, markerfacecolor=ground(),
                                   markeredgecolor=faint(), markeredgewidth=1.3))  # fmt: skip
    handles += marks.best_batch_size_entry(fits)
    if any(f.min_steps.value is not None or f.min_examples.value is not None for f in fits):
        text = f"least steps, least {unit_of(pairs)}"
        handles.append(marks.entry(text, color=faint(), linewidth=0.7, linestyle=PERFECT_DASHES))
    return [*handles, marks.entry("equal batch size", color=grey("#dcdcdc"), linewidth=0.8)]


def _rounded(critical: float) -> str:
    return number(float(f"{critical:.2g}" if critical < 100 else f"{critical:.3g}"))
