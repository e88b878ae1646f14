"""Marks that figures share: points with their error bars, and what is odd about a point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.markers import CARETUPBASE
from matplotlib.patches import Patch
from matplotlib.path import Path

from analysis.curves.curve import Curve
from analysis.curves.edges import Edge
from analysis.curves.estimators import MEDIAN
from analysis.curves.points import Point, Repeats
from analysis.figures.drawing.colours import faint, grey, ground, ink, tint
from analysis.figures.drawing.page import mark, scaled, stroke
from analysis.figures.drawing.strips import HATCH, strips_are_open
from analysis.figures.drawing.style import Look
from analysis.fit.reference_lines import regime_spans
from analysis.fit.regimes import Regimes

_BESIDE = 0.22
"""Doublings of the batch size to the right of a point at which its repeats stand."""


def points(ax: Axes, curve: Curve, found: Regimes | None, look: Look, *, place: int = 0) -> None:
    """Steps to target with error bars; hollow where left out of the fit, ringed where the optimum
    sits on an edge of its search space (a dotted ring: near-best trials do). Beside them, the
    medians of the best configurations' repeats, further to the right for curves of a later
    ``place``."""
    left_out = set(found.left_out) if found else set()
    for point in curve.points:
        at = point.batch_size
        if point.steps is None:
            continue
        hollow = at in left_out
        if point.bar is not None:
            low, high = point.bar
            open_above = not np.isfinite(high)
            top = point.steps * 1.25 if open_above else high
            # Lighter, and under all points: bars of several curves meet at a batch size.
            pale = tint(look.colour, 0.55)
            ax.plot([at, at], [low, top], color=pale, linewidth=stroke(0.9), zorder=2)
            if open_above:
                ax.plot([at], [top], marker=CARETUPBASE, markersize=mark(3), color=pale, zorder=2)
        for steps in point.runs or (point.steps,):
            ax.plot(
                [at],
                [steps],
                marker=look.marker,
                color=look.colour,
                markerfacecolor=ground() if hollow else look.colour,
                markeredgewidth=stroke(0.9) if hollow else 0.5,
                markeredgecolor=look.colour if hollow else ground(),
                zorder=5,
            )
        ring(ax, at, point.steps, point.edges)
        if point.repeats is not None:
            _repeats(ax, at * 2 ** (_BESIDE * (1 + 0.6 * place)), point.repeats, look)


def ring(ax: Axes, x: float, y: float, edges: Sequence[Edge]) -> None:
    """A ring where the optimum sits on an edge of its search space, dotted where only near-best
    trials do; nothing where there is room."""
    if edges:
        sure = any(edge.verdict == "edge" for edge in edges)
        ax.plot(
            [x],
            [y],
            zorder=6,
            markersize=mark(8),
            markeredgecolor=ink(),
            **scaled(_RINGS["edge" if sure else "near"]),
        )


_DOTS = Path.make_compound_path(*(Path.arc(at, at + 14) for at in range(0, 360, 30)))
_RING: Any = {"markerfacecolor": "none", "linestyle": "none"}
_RINGS: dict[str, Any] = {
    "edge": {**_RING, "marker": "o", "markeredgewidth": 0.7},
    "near": {**_RING, "marker": _DOTS, "markeredgewidth": 0.8},
}
_ON = {"edge": "optimum on edge of space", "near": "near-best on edge of space"}


def rings(edges: Sequence[Edge]) -> list[Artist]:
    """Legend handles for the rings that ``edges`` bring."""
    there = {edge.verdict for edge in edges}
    return [
        Line2D(
            [],
            [],
            label=words,
            markersize=mark(7),
            markeredgecolor=ink(),
            **scaled(_RINGS[verdict]),
        )
        for verdict, words in _ON.items()
        if verdict in there
    ]


def _repeats(ax: Axes, at: float, repeats: Repeats, look: Look) -> None:
    """Their median as a dash, with its interval."""
    low, high = repeats.interval
    if repeats.median is None:
        return
    top = high if np.isfinite(high) else repeats.median * 1.25
    pale = tint(look.colour, 0.55)
    ax.plot([at, at], [low, top], color=pale, linewidth=stroke(0.7), zorder=2)
    if not np.isfinite(high):
        ax.plot([at], [top], marker=CARETUPBASE, markersize=mark(2.5), color=pale, zorder=2)
    ax.plot([at], [repeats.median], marker="_", markersize=mark(4.5), markeredgewidth=stroke(1.1),
            color=look.colour, zorder=4)  # fmt: skip


def why_open(point: Point) -> str | None:
    """Why the error bar of a point is open above; None where it is not."""
    if point.bar is None or np.isfinite(point.bar[1]):
        return None
    if point.estimator == MEDIAN:
        return "a search never\nreached the target"
    return "fewer than 4 trials\nreached the target"


def open_above(reasons: Iterable[str | None]) -> list[Artist]:
    """Legend handles for the bars that are open above, one each reason."""
    up: Any = CARETUPBASE
    return [
        Line2D([], [], marker=up, linestyle="none", color=faint(), markersize=mark(3.5),
               label=reason)
        for reason in dict.fromkeys(filter(None, reasons))
    ]  # fmt: skip


def bars(points: Sequence[Point]) -> list[Artist]:
    """Legend handles for the error bars of ``points``, and for those that are open above."""
    drawn = [point for point in points if point.bar is not None and point.bar[0] < point.bar[1]]
    if not drawn:
        return []
    label = "least to most of the runs" if all(p.runs for p in drawn) else "error bar of a point"
    bar = Line2D(
        [], [], marker="|", linestyle="none", color=faint(), markersize=mark(6),
        markeredgewidth=stroke(0.9), label=label,
    )  # fmt: skip
    return [bar, *open_above(map(why_open, drawn))]


def censored(ax: Axes, curves: Sequence[Curve], looks: Sequence[Look], top: float) -> None:
    """Open marks just above ``top`` (steps), an arrow up each, where the target was not reached;
    curves that share a batch size stand beside each other."""
    for i, (curve, look) in enumerate(zip(curves, looks, strict=True)):
        aside = 2.0 ** (0.22 * (i - (len(curves) - 1) / 2))
        for at in curve.censored:
            ax.plot(
                [at * aside], [top], marker=look.marker, color=look.colour, linestyle="none",
                markerfacecolor=ground(), markeredgewidth=stroke(0.9), zorder=5,
            )  # fmt: skip
            ax.annotate(
                "", (at * aside, top), xytext=(0, mark(9)), textcoords="offset points", zorder=4,
                arrowprops={
                    "arrowstyle": "<-", "color": look.colour, "linewidth": stroke(0.8),
                    "shrinkA": 0, "shrinkB": mark(2.2), "mutation_scale": mark(5),
                },
            )  # fmt: skip


def explained(
    curves: Sequence[Curve], regimes: Sequence[Regimes | None], *, strips: bool = True
) -> list[Artist]:
    """Legend handles, in grey, for the marks that are there (with ``strips``, for theirs)."""

    def key(label: str, marker: str, **options: Any) -> Line2D:
        usual = {
            "color": faint(),
            "linestyle": "none",
            "markerfacecolor": ground(),
            "markersize": 4,
        }
        return Line2D([], [], marker=marker, label=label, **scaled({**usual, **options}))

    handles: list[Artist] = []
    known = [found for found in regimes if found and found.critical_batch_size.value is not None]
    if known:
        whole = {"linestyle": "-", "markerfacecolor": faint()}
        handles.append(key(f"critical batch size, {_level(regimes)}", "o", **whole))
    if strips and any(found is not None for found in regimes):
        ends = {"linestyle": "-", "linewidth": 0.7, "color": ink(), "markersize": 3.5}
        handles.append(key(f"ends of regimes, {_level(regimes)}", "|", **ends))
        if not all(one.sure for found in regimes if found for one in regime_spans(found)):
            handles.append(
                Patch(
                    hatch=HATCH,
                    facecolor=grey("#e4e4e4"),
                    edgecolor=faint(),
                    linewidth=0,
                    label="bounded, not reached",
                )
            )
        if any(strips_are_open(found) for found in regimes if found):
            handles.append(key("open end of an interval", ">", markerfacecolor=ink(), **ends))
    handles += bars([point for curve in curves for point in curve.points])
    if any(found and found.left_out for found in regimes):
        handles.append(key("rise, left out of the fit", "o"))
    if any(curve.censored for curve in curves):
        handles.append(
            key(
                "target not reached", "$\\uparrow$", markersize=mark(6), markeredgewidth=stroke(0.3)
            )
        )
    again = [p.repeats.level for c in curves for p in c.points if p.repeats is not None]
    if again:
        level = f", {min(again):.0%}" if min(again) > 0 else ""
        dash = {"markersize": 5, "markeredgewidth": 1.2}
        handles.append(key(f"repeats of the best:\nmedian{level}", "_", **dash))
        never = [
            "too few repeats\nreached the target"
            for c in curves
            for p in c.points
            if p.repeats is not None
            and p.repeats.median is not None
            and not np.isfinite(p.repeats.interval[1])
        ]
        handles += open_above(never)
    return [*handles, *rings([e for c in curves for p in c.points for e in p.edges])]


def _level(regimes: Sequence[Regimes | None]) -> str:
    return next(f"{100 * found.level:g} %" for found in regimes if found is not None)
