"""Marks that figures share: points with their error bars, and marks of special points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.markers import CARETUPBASE
from matplotlib.patches import Patch
from matplotlib.path import Path

from analysis.curves.curve import Curve
from analysis.curves.edges import Edge
from analysis.curves.estimators import MEDIAN
from analysis.curves.points import Point, Repeats
from analysis.figures.drawing.colours import faint, grey, ground, ink, tint
from analysis.figures.drawing.legends import entry
from analysis.figures.drawing.page import mark, scaled, stroke
from analysis.figures.drawing.strips import HATCH, has_open_intervals
from analysis.figures.drawing.style import CurveStyle
from analysis.fit.reference_lines import regime_spans
from analysis.fit.regimes import Regimes

_BESIDE = 0.22
"""Doublings of the batch size by which repeats are drawn to the right of a point."""
_DOTS = Path.make_compound_path(*(Path.arc(at, at + 14) for at in range(0, 360, 30)))
_RINGS: dict[str, dict[str, Any]] = {
    "edge": {"marker": "o", "markeredgewidth": 0.7},
    "near": {"marker": _DOTS, "markeredgewidth": 0.8},
}
_RING_LABELS = {"edge": "optimum on edge of space", "near": "near-best on edge of space"}
_CARET: Any = CARETUPBASE


def points(
    ax: Axes, curve: Curve, fit: Regimes | None, style: CurveStyle, *, place: int = 0
) -> None:
    """Steps to target with error bars; hollow where left out of the fit, ringed where the optimum
    sits on an edge of its search space (a dotted ring: near-best trials do). Beside them, the
    medians of the best configurations' repeats, further to the right for curves of a later
    ``place``."""
    left_out = set(fit.left_out) if fit else set()
    for point in curve.points:
        size = point.batch_size
        if point.steps is None:
            continue
        hollow = size in left_out
        if point.bar is not None:
            error_bar(ax, size, point.steps, point.bar, style.colour)
        for steps in point.runs or (point.steps,):
            ax.plot(
                [size], [steps], marker=style.marker, color=style.colour, zorder=5,
                markerfacecolor=ground() if hollow else style.colour,
                markeredgewidth=stroke(0.9) if hollow else 0.5,
                markeredgecolor=style.colour if hollow else ground(),
            )  # fmt: skip
        ring(ax, size, point.steps, point.edges)
        if point.repeats is not None:
            _repeats(ax, size * 2 ** (_BESIDE * (1 + 0.6 * place)), point.repeats, style)


def error_bar(
    ax: Axes,
    x: float,
    value: float,
    ends: tuple[float, float],
    colour: str,
    *,
    width: float = 0.9,
    caret: float = 3,
) -> None:
    """Under all points, and paler: bars of several curves meet at a batch size. One that is open
    above ends in a caret."""
    low, high = ends
    top = high if np.isfinite(high) else value * 1.25
    pale = tint(colour, 0.55)
    ax.plot([x, x], [low, top], color=pale, linewidth=stroke(width), zorder=2)
    if not np.isfinite(high):
        ax.plot([x], [top], marker=_CARET, markersize=mark(caret), color=pale, zorder=2)


def _repeats(ax: Axes, x: float, repeats: Repeats, style: CurveStyle) -> None:
    """Their median as a dash, with its interval."""
    if repeats.median is None:
        return
    error_bar(ax, x, repeats.median, repeats.interval, style.colour, width=0.7, caret=2.5)
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
    return entry("target not reached", marker="$\\uparrow$", color=faint(), markersize=size,
                 markeredgewidth=0.3)  # fmt: skip


def entries(
    curves: Sequence[Curve], regimes: Sequence[Regimes | None], *, strips: bool = True
) -> list[Artist]:
    """Legend entries, in grey, for the marks that are drawn (with ``strips``, for theirs too)."""
    hollow: dict[str, Any] = {"color": faint(), "markerfacecolor": ground(), "markersize": 4}
    handles: list[Artist] = []
    fits = [fit for fit in regimes if fit is not None]
    if any(fit.critical_batch_size.value is not None for fit in fits):
        handles.append(
            entry(f"critical batch size, {_level(fits)}", marker="o", linestyle="-",
                  color=faint(), markersize=4)
        )  # fmt: skip
    if strips and fits:
        ends: Any = {"linestyle": "-", "linewidth": 0.7, "color": ink(), "markersize": 3.5}
        handles.append(entry(f"ends of regimes, {_level(fits)}", marker="|", **ends))
        if not all(span.sure for fit in fits for span in regime_spans(fit)):
            handles.append(
                Patch(hatch=HATCH, facecolor=grey("#e4e4e4"), edgecolor=faint(), linewidth=0,
                      label="bounded, not reached")
            )  # fmt: skip
        if any(map(has_open_intervals, fits)):
            handles.append(entry("open end of an interval", marker=">", **ends))
    handles += bars([point for curve in curves for point in curve.points])
    if any(fit.left_out for fit in fits):
        handles.append(left_out_entry(**hollow))
    if any(curve.censored for curve in curves):
        handles.append(not_reached_entry())
    repeats = [p.repeats for curve in curves for p in curve.points if p.repeats is not None]
    if repeats:
        least = min(repeat.level for repeat in repeats)
        level = f", {least:.0%}" if least > 0 else ""
        dash: Any = {"color": faint(), "markersize": 5, "markeredgewidth": 1.2}
        handles.append(entry(f"repeats of the best:\nmedian{level}", marker="_", **dash))
        handles += open_above(
            "too few repeats\nreached the target"
            for repeat in repeats
            if repeat.median is not None and not np.isfinite(repeat.interval[1])
        )
    return [*handles, *rings(e for curve in curves for p in curve.points for e in p.edges)]


def left_out_entry(**options: Any) -> Artist:
    """The legend's entry for points that are left out of the fit."""
    return entry("rise, left out of the fit", marker="o", **options)


def _level(fits: Sequence[Regimes]) -> str:
    return f"{100 * fits[0].level:g} %"
