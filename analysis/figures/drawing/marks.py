"""Marks that figures share: points and their error bars, special points, and intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.patheffects import withStroke

from analysis.curves.curve import Curve
from analysis.curves.edges import Edge
from analysis.curves.estimators import MEDIAN
from analysis.curves.points import Point
from analysis.curves.runs import Repeats
from analysis.figures.drawing import error_bars
from analysis.figures.drawing.colours import faint, ground, ink
from analysis.figures.drawing.legends import entry
from analysis.figures.drawing.page import mark, scaled, stroke
from analysis.figures.drawing.style import CurveStyle
from analysis.fit.interval import Interval
from analysis.fit.regimes import Regimes
from analysis.formatting import units

_BESIDE = 0.22
"""Doublings of the batch size by which repeats are drawn to the right of a point."""
_DOTS = Path.make_compound_path(*(Path.arc(at, at + 14) for at in range(0, 360, 30)))
_RINGS: dict[str, dict[str, Any]] = {
    "edge": {"marker": "o", "markeredgewidth": 0.7},
    "near": {"marker": _DOTS, "markeredgewidth": 0.8},
}
_RING_LABELS = {"edge": "optimum on edge of space", "near": "near-best on edge of space"}


def points(ax: Axes, curve: Curve, style: CurveStyle, *, place: int = 0) -> None:
    """Steps to target with error bars; ringed where the optimum sits on an edge of its search space
    (a dotted ring: near-best trials do). Beside them, the medians of the best configurations'
    repeats, further to the right for curves of a later ``place``."""
    reached = [point for point in curve.points if point.steps is not None]
    barred = [point for point in reached if point.bar is not None]
    error_bars.draw(
        ax,
        [point.batch_size for point in barred],
        [(point.steps or 0.0, *(point.bar or (0.0, 0.0))) for point in barred],
        style.colour,
    )
    at = [(p.batch_size, y) for p in reached for y in p.runs or (p.steps,)]
    if at:
        x, y = zip(*at, strict=True)
        ax.plot(
            x, y, linestyle="none", marker=style.marker, color=style.colour, zorder=5,
            markeredgewidth=0.5, markeredgecolor=ground(),
        )  # fmt: skip
    for point in reached:
        ring(ax, point.batch_size, point.steps or 0.0, point.edges)
        if point.repeats is not None:
            beside = point.batch_size * 2 ** (_BESIDE * (1 + 0.6 * place))
            _repeats(ax, beside, point.repeats, style)


def _repeats(ax: Axes, x: float, repeats: Repeats, style: CurveStyle) -> None:
    """Their median as a dash, with its interval."""
    if repeats.median is None:
        return
    error_bars.draw(
        ax, [x], [(repeats.median, *repeats.interval)], style.colour, width=0.7, caret=2.5
    )
    ax.plot([x], [repeats.median], marker="_", markersize=mark(4.5), markeredgewidth=stroke(1.1),
            color=style.colour, zorder=4)  # fmt: skip


def ring(ax: Axes, x: float, y: float, edges: Sequence[Edge]) -> None:
    """A ring where the optimum sits on an edge of its search space, dotted where only near-best
    trials do; nothing where ``edges`` is empty."""
    if edges:
        kind = "edge" if any(edge.verdict == "edge" for edge in edges) else "near"
        ax.plot([x], [y], zorder=6, linestyle="none", markerfacecolor="none",
                markeredgecolor=ink(), **scaled({"markersize": 8, **_RINGS[kind]}))  # fmt: skip


def rings(edges: Iterable[Edge]) -> list[Artist]:
    """Legend entries for the rings of these ``edges``."""
    verdicts = {edge.verdict for edge in edges}
    colours = {"markerfacecolor": "none", "markeredgecolor": ink()}
    return [
        entry(label, markersize=7, **colours, **_RINGS[verdict])
        for verdict, label in _RING_LABELS.items()
        if verdict in verdicts
    ]


def why_open(point: Point) -> str | None:
    """Why the error bar of a point is open above; None where it is not."""
    if point.bar is None or np.isfinite(point.bar[1]):
        return None
    if point.estimator == MEDIAN:
        return "a search never\nreached the target"
    return "fewer than 4 trials\nreached the target"


def open_above(reasons: Iterable[str | None]) -> list[Artist]:
    """Legend entries for the bars that are open above, one for each reason."""
    return [
        entry(reason, marker=error_bars.CARET, color=faint(), markersize=3.5)
        for reason in dict.fromkeys(filter(None, reasons))
    ]


def bars(points: Sequence[Point]) -> list[Artist]:
    """Legend entries for the error bars of ``points``, and for those that are open above."""
    drawn = [point for point in points if point.bar is not None and point.bar[0] < point.bar[1]]
    if not drawn:
        return []
    label = "least to most of the runs" if all(p.runs for p in drawn) else "error bar of a point"
    bar = entry(label, marker="|", color=faint(), markersize=6, markeredgewidth=0.9)
    return [bar, *open_above(map(why_open, drawn))]


def not_reached(
    ax: Axes,
    x: float,
    top: float,
    style: CurveStyle,
    *,
    length: float = 9,
    width: float = 0.8,
    **options: Any,
) -> None:
    """An open mark at ``top`` with an arrow up: the target was not reached."""
    usual: dict[str, Any] = {"markeredgewidth": 0.9, **options}
    ax.plot([x], [top], marker=style.marker, color=style.colour, linestyle="none", zorder=5,
            markerfacecolor=ground(), markeredgecolor=style.colour, **scaled(usual))  # fmt: skip
    ax.annotate(
        "", (x, top), xytext=(0, mark(length)), textcoords="offset points", zorder=4,
        arrowprops={
            "arrowstyle": "<-", "color": style.colour, "linewidth": stroke(width),
            "shrinkA": 0, "shrinkB": mark(2.2), "mutation_scale": mark(5),
        },
    )  # fmt: skip


def censored(ax: Axes, curves: Sequence[Curve], styles: Sequence[CurveStyle], top: float) -> None:
    """Marks at ``top`` (steps) of the batch sizes that did not reach the target; curves that share
    a batch size are drawn side by side."""
    for i, (curve, style) in enumerate(zip(curves, styles, strict=True)):
        shift = 2.0 ** (0.22 * (i - (len(curves) - 1) / 2))
        for size in curve.censored:
            not_reached(ax, size * shift, top, style)


def not_reached_entry(size: float = 6) -> Artist:
    """The legend's entry for such marks."""
    with mpl.rc_context({"text.parse_math": True}):
        arrow: Any = MarkerStyle("$\\uparrow$")
    return entry("target not reached", marker=arrow, color=faint(), markersize=size,
                 markeredgewidth=0.3)  # fmt: skip


def critical(ax: Axes, fit: Regimes, row: float, style: CurveStyle, **options: Any) -> None:
    """The critical batch size with its interval."""
    critical = fit.critical_batch_size
    draw_interval(ax, critical, row, fit.fitted_over, colour=style.colour, width=1.4, cap=4.5)
    if critical.value is not None:
        ax.plot([critical.value], [row], marker=style.marker, color=style.colour, zorder=6,
                markeredgecolor=ground(), markeredgewidth=stroke(0.6), **options)  # fmt: skip


def best_batch_size(
    ax: Axes, fit: Regimes | None, style: CurveStyle, *, over_examples: bool = False
) -> None:
    """On the fitted curve, over batch sizes or over examples to target: the batch size of fewest
    examples of a curve with a small-batch penalty, and the part of the curve in its interval."""
    best = None if fit is None else fit.best_batch_size
    if fit is None or best is None or best.is_open:
        return
    first, last = fit.fitted_over
    x = np.geomspace(best.low or first, best.high or last, 64)
    steps = fit.steps(x)
    ax.plot(x * steps if over_examples else x, steps, color=style.colour, alpha=0.35, zorder=3,
            linewidth=stroke(5), solid_capstyle="butt")  # fmt: skip
    if best.value is not None:
        at = float(fit.steps([best.value])[0])
        ax.plot([best.value * at if over_examples else best.value], [at], marker="D", zorder=7,
                linestyle="none", color=ground(), markersize=mark(4.5),
                markeredgecolor=style.colour, markeredgewidth=stroke(1.2))  # fmt: skip


def best_batch_size_entry(fits: Sequence[Regimes]) -> list[Artist]:
    """The legend's entry for such marks, where there are any."""
    penalized = [f for f in fits if f.best_batch_size and not f.best_batch_size.is_open]
    if not penalized:
        return []
    unit = units(fit.example_unit for fit in penalized)
    label = f"fewest {unit}, {100 * penalized[0].level:g} %"
    return [entry(label, marker="D", color=faint(), markerfacecolor=ground(), markersize=4.5,
                  markeredgewidth=1.2)]  # fmt: skip


def draw_interval(
    ax: Axes,
    interval: Interval,
    y: float,
    span: tuple[float, float],
    *,
    colour: Any,
    width: float,
    cap: float | None = None,
    **arrow: float,
) -> None:
    """A line from end to end; where an end is open, an arrow at the end of ``span``. With ``cap``
    the ends that are known have caps of that size, and the line a halo."""
    if interval.is_open:
        return
    low = span[0] if interval.low is None else interval.low
    high = span[1] if interval.high is None else interval.high
    halo = [withStroke(linewidth=stroke(width + 1.1), foreground=ground())] if cap else []
    ax.plot([low, high], [y, y], color=colour, linewidth=stroke(width), zorder=4,
            solid_capstyle="butt", path_effects=halo)  # fmt: skip
    for x, end, marker in ((low, interval.low, "<"), (high, interval.high, ">")):
        options: dict[str, Any] = {"marker": marker, "markersize": 2.5, **arrow}
        if end is not None:
            if cap is None:
                continue
            options = {"marker": "|", "markersize": cap, "markeredgewidth": width * 0.8}
        ax.plot([x], [y], color=colour, zorder=4, clip_on=end is not None, **scaled(options))


def has_open_intervals(fit: Regimes) -> bool:
    """Whether an interval of its strip has an arrow in the place of an end."""
    drawn = (fit.perfect_scaling_until, fit.maximal_parallelism_from, fit.critical_batch_size)
    return any((interval.low is None) != (interval.high is None) for interval in drawn)


def criticals(ax: Axes, regimes: Sequence[Regimes | None], styles: Sequence[CurveStyle]) -> None:
    """The critical batch sizes with their intervals along the bottom of a panel that has no
    strips beneath it."""
    low, high = ax.get_ylim()
    ax.set_ylim(low * (low / high) ** (0.045 * len(regimes)), high)
    for i, (fit, style) in enumerate(zip(regimes, styles, strict=True)):
        if fit is not None and fit.critical_batch_size.value is not None:
            critical(ax, fit, low * (low / high) ** (0.045 * (i + 0.3)), style)
