"""The three regimes of each curve, as a strip over batch sizes or as the shade of a panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, ground, ink, tint
from analysis.figures.drawing.optimizer_styles import CurveStyle
from analysis.fit.interval import Interval
from analysis.fit.reference_lines import RegimeSpan, regime_spans
from analysis.fit.regimes import Regimes

HEIGHT = 0.2
"""Inches of a strip."""
_SHADES = (0.50, 0.24, 0.08)
"""How much of the colour each regime keeps, perfect scaling first: different without colour too."""
_NAMES = ("perfect scaling", "diminishing returns", "maximal parallelism")
_SLOPE = 0.2
"""The share of a strip that the slope at its end takes."""


def strips(
    ax: Axes, fits: Sequence[Regimes | None], names: Sequence[str], styles: Sequence[CurveStyle]
) -> None:
    """One strip a curve: its regimes, the intervals of their ends, and the critical batch size.
    Beside it is its name, or, where ``names`` are too long, its mark."""
    rows = range(len(fits))[::-1]
    named = max(map(len, names)) <= 10
    across = ax.get_yaxis_transform()
    for i, (row, fit, style) in enumerate(zip(rows, fits, styles, strict=True)):
        if not named:
            marks.dots(ax, [-0.03], [row], style, transform=across, clip_on=False)
        if fit is None:
            ax.text(0.5, row, "too few batch sizes", transform=across, ha="center", va="center",
                    fontsize="x-small")  # fmt: skip
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
        marks.critical(ax, fit, row, style)
        _slopes(ax, fit, row, named=i == next(j for j, each in enumerate(fits) if each))
    ax.set_ylim(-0.6, len(fits) - 0.4)
    ax.set_yticks(list(rows) if named else [], list(names) if named else [])
    ax.tick_params(axis="y", length=0, pad=3)
    ax.spines["left"].set_visible(False)


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
        text = ax.text(at, y, f" {name}{round(slope.value, 2) + 0.0:.2f} ", ha=side, va="center",
                       fontsize="xx-small", zorder=8)  # fmt: skip
        text.set_path_effects([withStroke(linewidth=1.6, foreground=ground())])


def shade(ax: Axes, fit: Regimes) -> None:
    """The regimes of one curve as the shade of its panel."""
    for span in regime_spans(fit):
        ax.axvspan(span.low, span.high, zorder=0, **_span_colours("#5b7fa3", span, 0.5))


def regime_entries(fits: Sequence[Regimes]) -> list[Artist]:
    """Legend entries, in grey, for the regimes that are drawn."""
    spans = {(not s.sure, s.regime): s for fit in fits for s in regime_spans(fit)}
    return [
        Patch(
            label=f"{_NAMES[regime].split()[0]}, bounded" if bounded else _NAMES[regime],
            **_span_colours(ink(), span),
        )
        for (bounded, regime), span in sorted(spans.items())
    ]


def interval_entries(fits: Sequence[Regimes], *, strips: bool) -> list[Artist]:
    """Legend entries for the critical batch sizes, and with ``strips`` for the ends of regimes."""
    handles: list[Artist] = []
    level = f"{100 * fits[0].level:g} %" if fits else ""
    if any(fit.critical_batch_size.value is not None for fit in fits):
        handles.append(
            marks.entry(f"critical batch size, {level}", marker="o", linestyle="-", color=faint())
        )
    if strips and fits:
        ends: Any = {"linestyle": "-", "linewidth": 0.7, "color": ink(), "markersize": 3.5}
        handles.append(marks.entry(f"ends of regimes, {level}", marker="|", **ends))
        if any(map(marks.has_open_intervals, fits)):
            handles.append(marks.entry("open end of an interval", marker=">", **ends))
    return handles


def _span_colours(colour: str, span: RegimeSpan, share: float = 1.0) -> dict[str, Any]:
    """The face of a regime; of a bounded one that of diminishing returns, which is what lies there
    else, striped with its own."""
    if span.sure:
        return {"facecolor": tint(colour, _SHADES[span.regime] * share), "linewidth": 0}
    stripes = tint(colour, 0.7 * share) if span.regime == 0 else ground()
    face = tint(colour, _SHADES[1] * share)
    return {"facecolor": face, "edgecolor": stripes, "hatch": "////", "linewidth": 0}
