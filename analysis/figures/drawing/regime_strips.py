"""The three regimes of each curve, as a strip over batch sizes or as the shade of a panel, and the
legend of a figure that has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from analysis.curves.curve import Curve
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, ground, ink, tint
from analysis.figures.drawing.legends import entry
from analysis.figures.drawing.page import mark, stroke
from analysis.figures.drawing.style import PERFECT_DASHES, CurveStyle
from analysis.fit.interval import Interval
from analysis.fit.reference_lines import RegimeSpan, perfect_examples, regime_spans
from analysis.fit.regimes import Regimes

SHADES = (0.50, 0.24, 0.08)
"""How much of the colour each regime keeps, perfect scaling first: different without colour too."""

_SLOPE = 0.2
"""The share of a strip that the slope at its end takes."""

NAMES = ("perfect scaling", "diminishing returns", "maximal parallelism")

HATCH = "////"


def _span_colours(colour: str, span: RegimeSpan, share: float = 1.0) -> dict[str, Any]:
    """The face of a regime; of a bounded one that of diminishing returns, which is what lies there
    else, striped with its own."""
    if span.sure:
        return {"facecolor": tint(colour, SHADES[span.regime] * share), "linewidth": 0}
    stripes = tint(colour, 0.7 * share) if span.regime == 0 else ground()
    face = tint(colour, SHADES[1] * share)
    return {"facecolor": face, "edgecolor": stripes, "hatch": HATCH, "linewidth": 0}


def regime_entries(fits: Sequence[Regimes]) -> list[Artist]:
    """Legend entries, in grey, for the regimes that are drawn."""
    spans = {(not s.sure, s.regime): s for fit in fits for s in regime_spans(fit)}
    return [
        Patch(
            label=f"{NAMES[regime].split()[0]}, bounded" if bounded else NAMES[regime],
            **_span_colours(ink(), span),
        )
        for (bounded, regime), span in sorted(spans.items())
    ]


NAMED = 1.6
"""The height of a strip with its name above it, in strips with names beside them."""


def strips(
    ax: Axes,
    regimes: Sequence[Regimes | None],
    labels: Sequence[str],
    styles: Sequence[CurveStyle],
    *,
    handle: float | None = None,
) -> None:
    """One strip a curve: its regimes, the intervals of their ends, and the critical batch size.

    Its name is beside it; or, with ``handle``, above it with the curve's mark and line before it,
    which take that part of the axes' width.
    """
    apart = 1.0 if handle is None else NAMED
    rows = [apart * i for i in range(len(regimes))][::-1]
    for i, (row, fit, style) in enumerate(zip(rows, regimes, styles, strict=True)):
        if handle is not None:
            _strip_name(ax, labels[i], row + 0.76, style, handle, fitted=fit is not None)
        if fit is None:
            ax.text(0.5, row, "too few batch sizes", transform=ax.get_yaxis_transform(),
                    ha="center", va="center", fontsize="x-small")  # fmt: skip
            continue
        for span in regime_spans(fit):
            ax.barh(row, span.high - span.low, left=span.low, height=0.84, zorder=2,
                    **_span_colours(style.colour, span))  # fmt: skip
        # One above the other: wide intervals overlap.
        for end, y in (
            (fit.perfect_scaling_until, row + 0.23),
            (fit.maximal_parallelism_from, row - 0.23),
        ):
            marks.draw_interval(ax, end, y, fit.fitted_over, colour=ink(), width=0.7, cap=3)
        marks.critical(ax, fit, row, style, markersize=mark(4))
        _slopes(ax, fit, row, named=i == next(j for j, each in enumerate(regimes) if each))
    ax.set_ylim(-0.6, rows[0] + apart - 0.4)
    ax.set_yticks([] if handle else rows, [] if handle else labels)
    ax.tick_params(axis="y", length=0, pad=3)
    for spine in ("left", "top", "right"):
        ax.spines[spine].set_visible(False)


def _strip_name(
    ax: Axes, name: str, y: float, style: CurveStyle, handle: float, *, fitted: bool
) -> None:
    across = ax.get_yaxis_transform()
    ax.plot([0, handle / 2, handle], [y, y, y], transform=across, color=style.colour,
            linestyle=style.line if fitted else "none", marker=style.marker, markevery=[1],
            markeredgecolor=ground(), markeredgewidth=0.5, clip_on=False)  # fmt: skip
    ax.text(1.2 * handle, y, name, transform=across, va="center_baseline", fontsize="small")


def _slopes(ax: Axes, fit: Regimes, row: float, *, named: bool) -> None:
    """The slopes at the strip's ends, where no interval is drawn: below the critical batch size's
    at the left, above it at the right. ``named``: with its name."""
    first, last = np.log(fit.fitted_over)
    low, high = fit.maximal_parallelism_from.low, fit.perfect_scaling_until.high
    taken = _SLOPE * (last - first)
    if low is not None and np.log(low) > first + taken:
        name = "slope " if named else ""
        _slope(ax, fit.slopes["first"], fit.fitted_over[0], row - 0.25, "left", name)
    if high is not None and np.log(high) < last - taken:
        _slope(ax, fit.slopes["last"], fit.fitted_over[1], row + 0.25, "right", "")


def _slope(ax: Axes, slope: Interval, at: float, y: float, side: str, name: str) -> None:
    if slope.value is not None:
        halo = withStroke(linewidth=stroke(1.6), foreground=ground())
        text = ax.text(at, y, f" {name}{round(slope.value, 2) + 0.0:.2f} ", ha=side, va="center",
                       fontsize="xx-small", zorder=8)  # fmt: skip
        text.set_path_effects([halo])


def shade(ax: Axes, fit: Regimes) -> None:
    """The regimes of one curve as the shade of its panel."""
    grey = "#5b7fa3"
    for span in regime_spans(fit):
        ax.axvspan(span.low, span.high, zorder=0, **_span_colours(grey, span, 0.5))


def entries(
    curves: Sequence[Curve], regimes: Sequence[Regimes | None], *, strips: bool = True
) -> list[Artist]:
    """Legend entries, in grey, for the marks that are drawn (with ``strips``, for theirs too)."""
    handles: list[Artist] = []
    fits = [fit for fit in regimes if fit is not None]
    level = f"{100 * fits[0].level:g} %" if fits else ""
    if any(map(perfect_examples, curves, regimes)):
        handles.append(
            entry("line of perfect scaling", color=ink(), linewidth=0.8, linestyle=PERFECT_DASHES)
        )
    if strips or len(curves) == 1:
        handles += regime_entries(fits)
    if any(fit.critical_batch_size.value is not None for fit in fits):
        handles.append(
            entry(f"critical batch size, {level}", marker="o", linestyle="-",
                  color=faint(), markersize=4)
        )  # fmt: skip
    handles += marks.best_batch_size_entry(fits)
    if strips and fits:
        ends: Any = {"linestyle": "-", "linewidth": 0.7, "color": ink(), "markersize": 3.5}
        handles.append(entry(f"ends of regimes, {level}", marker="|", **ends))
        if any(map(marks.has_open_intervals, fits)):
            handles.append(entry("open end of an interval", marker=">", **ends))
    handles += marks.bars([point for curve in curves for point in curve.points])
    if any(curve.censored for curve in curves):
        handles.append(marks.not_reached_entry())
    repeats = [p.repeats for curve in curves for p in curve.points if p.repeats is not None]
    if repeats:
        least = min(repeat.level for repeat in repeats)
        coverage = f", {least:.0%}" if least > 0 else ""
        dash: Any = {"color": faint(), "markersize": 5, "markeredgewidth": 1.2}
        handles.append(entry(f"repeats of the best:\nmedian{coverage}", marker="_", **dash))
        handles += marks.open_above(
            "too few repeats\nreached the target"
            for repeat in repeats
            if repeat.median is not None and not np.isfinite(repeat.interval[1])
        )
    return [*handles, *marks.rings(e for curve in curves for p in curve.points for e in p.edges)]
