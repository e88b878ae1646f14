"""Marks that figures share, and their entries in a legend: points and their error bars, special
points, and intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.markers import CARETUPBASE, MarkerStyle
from matplotlib.path import Path
from matplotlib.patheffects import withStroke

from analysis.curves.curve import Curve
from analysis.curves.edges import Edge
from analysis.curves.estimators import MEDIAN
from analysis.curves.points import Point
from analysis.figures.drawing.colours import faint, ground, ink, tint
from analysis.figures.drawing.optimizer_styles import CurveStyle
from analysis.fit.interval import Interval
from analysis.fit.regimes import Regimes
from analysis.formatting import units

OUTCOMES = {
    "reached": "target reached",
    "not reached": "not reached",
    "dominated": "dominated: not known",
    "infeasible": "infeasible",
}
"""The classes of trials (``analysis.curves.runs``) as legends name them."""
_CARET: Any = CARETUPBASE
_BESIDE = 0.22
"""Doublings of the batch size by which marks of one batch size are drawn beside each other."""
_DOTS = Path.make_compound_path(*(Path.arc(at, at + 14) for at in range(0, 360, 30)))
_RINGS: dict[str, dict[str, Any]] = {
    "edge": {"marker": "o", "markeredgewidth": 0.7},
    "near": {"marker": _DOTS, "markeredgewidth": 0.8},
}
_RING_LABELS = {"edge": "optimum on edge of space", "near": "near-best on edge of space"}


def entry(label: str, **options: Any) -> Line2D:
    """A legend's entry: a line, or a marker alone where no ``linestyle`` is given with it."""
    marker = {"linestyle": "none"} if "marker" in options else {}
    return Line2D([], [], label=label, **{**marker, **options})


def curve_entry(label: str, style: CurveStyle, *, fitted: bool = True) -> Line2D:
    """The entry of a curve."""
    return entry(label, color=style.colour, linestyle=style.line if fitted else "none",
                 marker=style.marker, markeredgecolor=ground(), markeredgewidth=0.5)  # fmt: skip


def dots(ax: Axes, x: Any, y: Any, style: CurveStyle, **options: Any) -> None:
    """Points of a curve, with an edge that separates them where they meet."""
    usual = {
        "marker": style.marker,
        "color": style.colour,
        "markeredgecolor": ground(),
        "zorder": 5,
    }
    ax.plot(x, y, **{"linestyle": "none", "markeredgewidth": 0.5, **usual, **options})


def error_bars(
    ax: Axes, x: Sequence[float], bars: Sequence[tuple[float, float, float]], colour: str
) -> None:
    """A bar at each ``x``: its value, and its ends. One that is open above ends in a caret.

    They lie under all points, and are paler: bars of several curves meet at a batch size. All are
    one line with gaps, since a figure of many curves takes much longer with a line for each.
    """
    if not bars:
        return
    pale = tint(colour, 0.55)
    tops = [high if np.isfinite(high) else value * 1.25 for value, _, high in bars]
    lines = [(low, top, np.nan) for (_, low, _), top in zip(bars, tops, strict=True)]
    ax.plot(np.repeat(x, 3), np.ravel(lines), color=pale, linewidth=0.9, zorder=2)
    above = [i for i, (_, _, high) in enumerate(bars) if not np.isfinite(high)]
    if above:
        ax.plot([x[i] for i in above], [tops[i] for i in above], linestyle="none", marker=_CARET,
                markersize=3, color=pale, zorder=2)  # fmt: skip


def points(ax: Axes, curve: Curve, style: CurveStyle, *, place: int = 0) -> None:
    """Steps to target with error bars; ringed where the optimum sits on an edge of its search space
    (a dotted ring: near-best trials do). Beside them, the medians of the best configurations'
    repeats, further to the right for curves of a later ``place``."""
    reached = [point for point in curve.points if point.steps is not None]
    barred = [point for point in reached if point.bar is not None]
    sizes = [point.batch_size for point in barred]
    bars = [(point.steps or 0.0, *(point.bar or (0.0, 0.0))) for point in barred]
    error_bars(ax, sizes, bars, style.colour)
    at = [(p.batch_size, y) for p in reached for y in p.runs or (p.steps,)]
    if at:
        x, y = zip(*at, strict=True)
        dots(ax, x, y, style)
    for point in reached:
        ring(ax, point.batch_size, point.steps or 0.0, point.edges)
        repeats = point.repeats
        if repeats is not None and repeats.median is not None:  # a dash, with its interval
            beside = point.batch_size * 2 ** (_BESIDE * (1 + 0.6 * place))
            error_bars(ax, [beside], [(repeats.median, *repeats.interval)], style.colour)
            ax.plot([beside], [repeats.median], marker="_", markersize=4.5, markeredgewidth=1.1,
                    color=style.colour, zorder=4)  # fmt: skip


def ring(ax: Axes, x: float, y: float, edges: Sequence[Edge]) -> None:
    """A ring where the optimum sits on an edge of its search space, dotted where only near-best
    trials do; nothing where ``edges`` is empty."""
    if edges:
        kind = "edge" if any(edge.verdict == "edge" for edge in edges) else "near"
        ax.plot([x], [y], zorder=6, linestyle="none", markerfacecolor="none", markersize=8,
                markeredgecolor=ink(), **_RINGS[kind])  # fmt: skip


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
        return "a search never reached the target"
    return "fewer than 4 trials reached the target"


def open_above(reasons: Iterable[str | None]) -> list[Artist]:
    """Legend entries for the bars that are open above, one for each reason."""
    return [
        entry(reason, marker=_CARET, color=faint(), markersize=3.5)
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


def repeats(points: Sequence[Point]) -> list[Artist]:
    """Legend entries for repeats of the best configurations, if there are any."""
    repeated = [point.repeats for point in points if point.repeats is not None]
    if not repeated:
        return []
    least = min(repeat.level for repeat in repeated)
    coverage = f", {least:.0%}" if least > 0 else ""
    dash: Any = {"color": faint(), "markersize": 5, "markeredgewidth": 1.2}
    return [
        entry(f"repeats of the best: median{coverage}", marker="_", **dash),
        *open_above(
            "too few repeats reached the target"
            for repeat in repeated
            if repeat.median is not None and not np.isfinite(repeat.interval[1])
        ),
    ]


def not_reached(ax: Axes, x: float, top: float, style: CurveStyle, **options: Any) -> None:
    """An open mark at ``top`` with an arrow up: the target was not reached."""
    dots(ax, [x], [top], style, markerfacecolor=ground(), markeredgecolor=style.colour,
         **{"markeredgewidth": 0.9, **options})  # fmt: skip
    ax.annotate(
        "", (x, top), xytext=(0, 9), textcoords="offset points", zorder=4,
        arrowprops={"arrowstyle": "<-", "color": style.colour, "linewidth": 0.8, "shrinkA": 0,
                    "shrinkB": 2.2, "mutation_scale": 5},
    )  # fmt: skip


def censored(ax: Axes, curves: Sequence[Curve], styles: Sequence[CurveStyle], top: float) -> None:
    """Marks at ``top`` (steps) of the batch sizes that did not reach the target; curves that share
    a batch size are drawn side by side."""
    for i, (curve, style) in enumerate(zip(curves, styles, strict=True)):
        shift = 2.0 ** (_BESIDE * (i - (len(curves) - 1) / 2))
        for size in curve.censored:
            not_reached(ax, size * shift, top, style)


def not_reached_entry() -> Artist:
    """The legend's entry for such marks."""
    with mpl.rc_context({"text.parse_math": True}):
        arrow: Any = MarkerStyle("$\\uparrow$")
    return entry("target not reached", marker=arrow, color=faint(), markersize=6,
                 markeredgewidth=0.3)  # fmt: skip


def critical(ax: Axes, fit: Regimes, row: float, style: CurveStyle) -> None:
    """The critical batch size with its interval."""
    critical = fit.critical_batch_size
    draw_interval(ax, critical, row, fit.fitted_over, colour=style.colour, width=1.4, cap=4.5)
    if critical.value is not None:
        dots(ax, [critical.value], [row], style, zorder=6)


def criticals(ax: Axes, regimes: Sequence[Regimes | None], styles: Sequence[CurveStyle]) -> None:
    """The critical batch sizes with their intervals along the bottom of a panel that has no
    strips beneath it."""
    low, high = ax.get_ylim()
    ax.set_ylim(low * (low / high) ** (0.045 * len(regimes)), high)
    for i, (fit, style) in enumerate(zip(regimes, styles, strict=True)):
        if fit is not None and fit.critical_batch_size.value is not None:
            critical(ax, fit, low * (low / high) ** (0.045 * (i + 0.3)), style)


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
            linewidth=5, solid_capstyle="butt")  # fmt: skip
    if best.value is not None:
        at = float(fit.steps([best.value])[0])
        ax.plot([best.value * at if over_examples else best.value], [at], marker="D", zorder=7,
                linestyle="none", color=ground(), markersize=4.5, markeredgecolor=style.colour,
                markeredgewidth=1.2)  # fmt: skip


def best_batch_size_entry(fits: Sequence[Regimes]) -> list[Artist]:
    """The legend's entry for such marks, where there are any."""
    penalized = [f for f in fits if f.best_batch_size and not f.best_batch_size.is_open]
    if not penalized:
        return []
    unit = units(fit.example_unit for fit in penalized)
    label = f"fewest {unit}, {100 * penalized[0].level:g} %"
    return [entry(label, marker="D", color=faint(), markerfacecolor=ground(), markersize=4.5,
                  markeredgewidth=1.2)]  # fmt: skip


def crossover_mark() -> dict[str, Any]:
    """The mark of a crossover, on an interval."""
    return {"marker": "D", "color": ink(), "markerfacecolor": ground(), "markersize": 4.5,
            "markeredgecolor": ink(), "markeredgewidth": 1.1}  # fmt: skip


def draw_interval(
    ax: Axes,
    interval: Interval,
    y: float,
    span: tuple[float, float],
    *,
    colour: Any,
    width: float,
    cap: float | None = None,
) -> None:
    """A line from end to end; where an end is open or beyond ``span``, an arrow at its end. With
    ``cap`` the other ends have caps of that size, and the line a halo."""
    if interval.is_open:
        return
    low = span[0] if interval.low is None else max(interval.low, span[0])
    high = span[1] if interval.high is None else min(interval.high, span[1])
    halo = [withStroke(linewidth=width + 1.1, foreground=ground())] if cap else []
    ax.plot([low, high], [y, y], color=colour, linewidth=width, zorder=4, solid_capstyle="butt",
            path_effects=halo)  # fmt: skip
    for x, end, marker in ((low, interval.low, "<"), (high, interval.high, ">")):
        if end != x:
            ax.plot([x], [y], color=colour, zorder=4, clip_on=False, marker=marker,
                    markersize=1.5 + 1.2 * width, markeredgewidth=0)  # fmt: skip
        elif cap is not None:
            ax.plot([x], [y], color=colour, zorder=4, marker="|", markersize=cap,
                    markeredgewidth=0.8 * width)  # fmt: skip


def mark_interval(
    ax: Axes, interval: Interval, y: float, span: tuple[float, float], **mark: Any
) -> None:
    """An interval of one colour with its value marked."""
    usual: dict[str, Any] = {"marker": "o", "color": ink(), "markeredgecolor": ground(), **mark}
    width = usual.pop("linewidth", 1.6)
    draw_interval(ax, interval, y, span, colour=usual["color"], width=width)
    if interval.value is not None and span[0] <= interval.value <= span[1]:
        ax.plot([interval.value], [y], **{"markeredgewidth": 0.4, "zorder": 5, **usual})


def has_open_intervals(fit: Regimes) -> bool:
    """Whether an interval of its strip has an arrow in the place of an end."""
    drawn = (fit.perfect_scaling_until, fit.maximal_parallelism_from, fit.critical_batch_size)
    return any((interval.low is None) != (interval.high is None) for interval in drawn)
