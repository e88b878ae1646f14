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
from matplotlib.legend import Legend
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox, ScaledTranslation

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.figures.drawing import legends, marks
from analysis.figures.drawing.colours import faint, grey, ground, ink
from analysis.figures.drawing.legends import entry
from analysis.figures.drawing.optimizer_styles import style_numbers
from analysis.figures.drawing.page import COLUMN, Page, mark, stroke, unit
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
    figure_of,
    figure_width,
    grid,
    inches,
    log10_axis,
    plain,
    tiles,
)
from analysis.figures.drawing.text_fit import distinct, within
from analysis.fit.regimes import Regimes
from results.errors import ResultsError

_PANEL, _LEAST = 2.5, 2.6
"""Inches of a panel: its height, and the width that it needs."""
_SMALL = 2.0, 2.3
"""The same of one of many."""
_LONG = 20
"""Letters from which names may not fit there."""
_FULL = 4
"""Curves whose names fit within the axes."""
_OPAQUE: dict[str, Any] = {"frameon": True, "framealpha": 1, "edgecolor": "none", "fancybox": False}
"""A legend that hides what is behind it."""

_Hit = tuple[int, float, float]
"""A batch size, its examples and its steps to target."""

Places = tuple[tuple[float, float], ...]
_AROUND: Places = (
    (1, -1), (-1, 1), (-1, -1), (1, 1), (1.8, -1.5), (-1.8, 1.5), (-1.8, -1.5), (1.8, 1.5),
)  # fmt: skip
"""Places of the critical batch size about its mark, in order of preference."""
_BESIDE: Places = ((-1, -1), (1, 1))
_ALONG: Places = ((1, -0.3), (-1, 0.3))


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
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
    names = [curve_names(pairs) for pairs in panels]
    numbers_of = style_numbers(name for each in names for name in each)
    height, least = _SMALL if len(panels) > MANY else (_PANEL, _LEAST)
    most = max(map(len, panels))
    extra = 0.45 + (0.14 * most if most > _FULL or max(map(len, numbers_of)) > _LONG else 0)
    need = COLUMN * min(len(panels), 2)
    axes = tiles(
        ax, page, len(panels), "panel", height, extra=extra, least=least, need=need, sharex=False
    )
    for panel_ax, pairs, panel_names in zip(axes, panels, names, strict=True):
        _draw_panel(panel_ax, pairs, [curve_style(numbers_of[name]) for name in panel_names])
        legends.title(panel_ax, caption(pairs, within(inches(panel_ax)[0], "small")))
    _add_legend(axes[0], panels, given=ax is not None)
    if ax is None:
        figure_of(axes[0]).draw_without_rendering()  # lays out: annotations must know what is free
    for panel_ax, pairs in zip(axes, panels, strict=True):
        _annotate_panel(panel_ax, pairs)
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


def _draw_panel(ax: Axes, pairs: Pairs, styles: Sequence[CurveStyle]) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    _set_limits(ax, pairs)
    grid(ax)
    for (curve, fit), style in zip(pairs, styles, strict=True):
        if fit is not None:
            _draw_frontier(ax, curve, fit, style)
            marks.best_batch_size(ax, fit, style, over_examples=True)
        for _, examples, steps in _hits(curve):
            ax.plot(
                [examples], [steps], marker=style.marker, color=style.colour,
                markeredgecolor=ground(), markersize=mark(3.6), markeredgewidth=stroke(0.4),
                zorder=5,
            )  # fmt: skip
    ax.set_xlabel(axis_to_target(examples_name(pairs), pairs))
    ax.set_ylabel(axis_to_target("steps", pairs))
    width, _ = inches(ax)
    texts = [
        "".join([name, *(f" ({_rounded(at)})" for at, *_ in _critical(curve, fit))])
        for name, (curve, fit) in zip(curve_names(pairs), pairs, strict=True)
    ]
    names = distinct(texts, within(width - legends.HANDLE * unit()))
    handles = [
        entry(name, color=style.colour, linestyle=style.line if fit else "none",
              marker=style.marker, markersize=3.6, markeredgecolor=ground(), markeredgewidth=0.4)
        for (_, fit), style, name in zip(pairs, styles, names, strict=True)
    ]  # fmt: skip
    columns = legends.columns_above(texts, width, _FULL)
    if any(fit is not None and fit.best_batch_size is not None for _, fit in pairs):
        columns = columns or 2  # the curve rises into the corner of the legend
    if len(pairs) > 1 and columns:
        legends.under_title(ax, handles, columns)
    elif len(pairs) > 1:
        # Opaque: the lines of equal batch sizes pass behind it.
        ax.legend(handles=handles, loc="upper right", **_OPAQUE)


def _set_limits(ax: Axes, pairs: Pairs) -> None:
    hits = [hit for curve, _ in pairs for hit in _hits(curve)]
    steps = [steps for _, _, steps in hits]
    examples = [examples for _, examples, _ in hits]
    # Space at the left and below for the asymptotes, which lie beyond all points.
    least = [f.min_steps.value for _, f in pairs if f and f.min_steps.value]
    fewest = [f.min_examples.value for _, f in pairs if f and f.min_examples.value]
    ax.set_xlim(min(examples + fewest) / 1.5, max(examples) * 1.6)
    ax.set_ylim(min(steps + least) / 1.6, max(steps) * 1.6)
    log10_axis(ax.xaxis, *ax.get_xlim(), most=5)
    log10_axis(ax.yaxis, *ax.get_ylim(), most=6)


def _draw_equal_sizes(ax: Axes, pairs: Pairs) -> list[tuple[float, float, float]]:
    """A faint line every eight-fold batch size; each with the steps at its two ends."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    sizes = [size for curve, _ in pairs for size in curve.batch_sizes]
    first, last = np.log2(min(sizes)), np.log2(max(sizes))
    lines = []
    every = 3 if last - first > 6 else 1
    for power in range(int(np.ceil(first)), int(np.floor(last)) + 1, every):
        size = 2.0**power
        start, end = max(left, size * low), min(right, size * high)
        if end > start:
            ax.plot([start, end], [start / size, end / size], color=grey("#dcdcdc"),
                    linewidth=stroke(0.6), zorder=1)  # fmt: skip
            lines.append((size, start / size, end / size))
    return lines


def _draw_frontier(ax: Axes, curve: Curve, fit: Regimes, style: CurveStyle) -> None:
    """The fitted curve and its asymptotes; of batch sizes that grow only the least steps, since
    their examples are not those of the fit."""
    if not curve.grows:
        sizes = np.geomspace(*fit.fitted_over, 256)
        steps = fit.steps(sizes)
        ax.plot(sizes * steps, steps, color=style.colour, linestyle=style.line, zorder=4)
    dashes: Any = {"color": style.colour, "linewidth": stroke(0.7), "linestyle": PERFECT_DASHES}
    if fit.min_steps.value is not None:
        ax.axhline(fit.min_steps.value, zorder=2, **dashes)
    if fit.min_examples.value is not None:
        ax.axvline(fit.min_examples.value, zorder=2, **dashes)
    for _, examples, at in _critical(curve, fit):
        ax.plot([examples], [at], marker=style.marker, markersize=mark(7.5), color=ground(),
                markeredgecolor=style.colour, markeredgewidth=stroke(1.3), zorder=6)  # fmt: skip


def _critical(curve: Curve, fit: Regimes | None) -> list[tuple[float, float, float]]:
    """The critical batch size, and examples and steps there; empty where it is not known, or batch
    sizes grow."""
    critical = fit.critical_batch_size.value if fit else None
    if fit is None or critical is None or curve.grows:
        return []
    steps = float(fit.steps([critical])[0])
    return [(critical, critical * steps, steps)]


def _annotate_panel(ax: Axes, pairs: Pairs) -> None:
    """The critical batch size of a single curve beside its mark, and a few batch sizes beside their
    points, where they fit. That of several is in the legend: a number may lie nearer to the mark of
    another curve."""
    occupied: list[np.ndarray] = []
    for curve, fit in pairs:
        places = [*_hits(curve), *_critical(curve, fit)]
        occupied += [_pixels(ax, *place) for _, *place in places]
    lines = _draw_equal_sizes(ax, pairs)
    if len(pairs) == 1:
        for critical, examples, steps in _critical(*pairs[0]):
            _annotate(ax, examples, steps, _rounded(critical), occupied, _AROUND, bold=True)
        for size, examples, steps in _spread(_hits(pairs[0][0])):
            _annotate(ax, examples, steps, plain(size), occupied, _BESIDE)
        return
    occupied += _asymptotes(ax, pairs)
    for equal, first, last in lines:
        for steps in np.geomspace(first, last, 9):
            text = f"B = {plain(equal)}"
            if _annotate(ax, equal * steps, steps, text, occupied, _ALONG, colour=faint()):
                break


def _rounded(critical: float) -> str:
    return plain(float(f"{critical:.2g}" if critical < 100 else f"{critical:.3g}"))


def _spread(hits: Sequence[_Hit]) -> list[_Hit]:
    """The ends first, then those between, halving the gaps."""
    order = [0, len(hits) - 1]
    step = len(hits)
    while step > 1:
        step = -(-step // 2)
        order += range(0, len(hits), step)
    return [hits[i] for i in dict.fromkeys(order)]


def _hits(curve: Curve) -> list[_Hit]:
    """Batch sizes that reached the target, with their examples and steps."""
    points = [point for point in curve.points if point.steps]
    return [(point.batch_size, point.examples or 0.0, point.steps or 0.0) for point in points]


def _asymptotes(ax: Axes, pairs: Pairs) -> list[np.ndarray]:
    """Places on the asymptotes, in pixels, that annotations are not to cover."""
    box, fits = ax.bbox, [fit for _, fit in pairs if fit is not None]
    level = [ax.transData.transform((1, s))[1] for f in fits if (s := f.min_steps.value)]
    upright = [ax.transData.transform((e, 1))[0] for f in fits if (e := f.min_examples.value)]
    return [np.array([x, y]) for y in level for x in np.linspace(box.x0, box.x1, 80)] + [
        np.array([x, y]) for x in upright for y in np.linspace(box.y0, box.y1, 80)
    ]


def _pixels(ax: Axes, examples: float, steps: float) -> np.ndarray:
    return np.asarray(ax.transData.transform((examples, steps)))


def _annotate(
    ax: Axes,
    examples: float,
    steps: float,
    text: str,
    occupied: list[np.ndarray],
    places: Places,
    *,
    bold: bool = False,
    colour: str = "",
) -> bool:
    """Beside its point, at the first of ``places`` that is free; whether there is such a place."""
    point = figure_of(ax).dpi / 72
    boxes = [legend.get_window_extent() for legend in ax.findobj(Legend)]
    line = 6.7 * unit() * point
    width = 0.58 * line * len(text) * (1.12 if bold else 1)
    at = _pixels(ax, examples, steps)
    gap = (5.5 if bold else 3.5) * unit() * point
    space = np.array([width, line]) / 2
    margin = 2.5 * point * unit()
    low, high = ax.bbox.get_points()
    for across, up in places:
        middle = at + np.array(
            [across * gap + np.sign(across) * width / 2, up * (gap * 0.6 + line / 2)]
        )
        near = any((np.abs(place - middle) < space + margin).all() for place in occupied)
        inside = (low < middle - space).all() and (middle + space < high).all()
        if near or not inside or any(_covers(box, middle, space) for box in boxes):
            continue
        ax.annotate(
            text, (examples, steps), xytext=(middle - at) / point, ha="center", va="center",
            textcoords="offset points", fontsize="small", zorder=7, color=colour or ink(),
            fontweight="bold" if bold else "normal",
            path_effects=[withStroke(linewidth=stroke(1.8), foreground=ground())],
        )  # fmt: skip
        occupied += [middle + np.array([part * width / 2, 0]) for part in (-1, -0.5, 0, 0.5, 1)]
        return True
    return False


def _covers(box: Bbox, middle: np.ndarray, space: np.ndarray) -> bool:
    """Whether text about ``middle``, ``space`` pixels to each side, would be in ``box``."""
    centre = np.array([(box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2])
    return bool((np.abs(middle - centre) < space + np.array([box.width, box.height]) / 2).all())


def _add_legend(ax: Axes, panels: Sequence[Pairs], *, given: bool) -> None:
    pairs = [pair for panel in panels for pair in panel]
    several = any(len(panel) > 1 for panel in panels)
    fits = [fit for _, fit in pairs if fit]
    handles: list[Artist] = []
    if any(_critical(curve, fit) for curve, fit in pairs):
        text = "critical batch size" + " (in brackets)" * several
        handles.append(
            entry(text, marker="o", markersize=7, markerfacecolor=ground(),
                  markeredgecolor=faint(), markeredgewidth=1.3)
        )  # fmt: skip
    handles += marks.best_batch_size_entry(fits)
    if any(f.min_steps.value is not None or f.min_examples.value is not None for f in fits):
        text = f"least steps, least {examples_name(pairs)}"
        handles.append(entry(text, color=faint(), linewidth=0.7, linestyle=PERFECT_DASHES))
    equal = entry("equal batch size", color=grey("#dcdcdc"), linewidth=0.8)
    if not given:
        legends.shared_legend(
            [ax], [*handles, equal], loc="outside lower center",
            ncols=3 if figure_width(ax) > 1.5 * COLUMN else 2,
        )  # fmt: skip
        return
    curves = ax.get_legend()
    beneath = ScaledTranslation(0, -0.42 * unit(), figure_of(ax).dpi_scale_trans)
    ax.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0, 0), borderaxespad=0,
        bbox_transform=ax.transAxes + beneath,
    )  # fmt: skip
    if curves is not None:
        ax.add_artist(curves)  # which the second one has replaced
