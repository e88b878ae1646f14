"""The three regimes of each curve, as a strip over batch sizes or as the shade of a panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from analysis.figures.drawing.colours import ground, ink, tint
from analysis.figures.drawing.page import mark, scaled, stroke, unit
from analysis.figures.drawing.style import CurveStyle, inches
from analysis.fit.reference_lines import regime_spans
from analysis.fit.regimes import Interval, Regimes

SHADES = (0.50, 0.24, 0.08)
"""How much of the colour each regime keeps, perfect scaling first: different without colour too."""

NAMES = (
    ("perfect scaling", "perfect"),
    ("diminishing returns", "diminishing"),
    ("maximal parallelism", "maximal"),
)
"""Each regime's name, and in short."""

HATCH = "////"
_LETTER = 0.052
"""Inches that a letter of a heading takes, about."""


def strips(
    ax: Axes,
    regimes: Sequence[Regimes | None],
    labels: Sequence[str],
    styles: Sequence[CurveStyle],
) -> None:
    """One strip a curve: its regimes, the intervals of their ends, and the critical batch size."""
    count = len(regimes)
    for i, (fit, style) in enumerate(zip(regimes, styles, strict=True)):
        row = count - 1 - i
        if fit is None:
            ax.text(0.5, row, "too few batch sizes", transform=ax.get_yaxis_transform(),
                    ha="center", va="center", fontsize="x-small")  # fmt: skip
            continue
        for span in regime_spans(fit):
            ax.barh(
                row, span.high - span.low, left=span.low, height=0.84, zorder=2,
                color=tint(style.colour, SHADES[span.regime]),
                edgecolor=ground() if span.sure else tint(style.colour, 0.75),
                hatch=None if span.sure else HATCH, linewidth=0,
            )  # fmt: skip
        # One above the other: wide intervals overlap.
        for end, y in (
            (fit.perfect_scaling_until, row + 0.23),
            (fit.maximal_parallelism_from, row - 0.23),
        ):
            draw_interval(ax, end, y, fit.fitted_over, colour=ink(), width=0.7, cap=3)
        _critical(ax, fit, row, style, markersize=mark(4))
    ax.set_ylim(-0.6, count - 0.4)
    two_lines = [text if "\n" in text else text.replace(", ", ",\n") for text in labels]
    ax.set_yticks(range(count), two_lines[::-1])
    ax.tick_params(axis="y", length=0, pad=3)
    for spine in ("left", "top", "right"):
        ax.spines[spine].set_visible(False)


def _critical(ax: Axes, fit: Regimes, row: float, style: CurveStyle, **options: Any) -> None:
    """The critical batch size with its interval."""
    critical = fit.critical_batch_size
    draw_interval(ax, critical, row, fit.fitted_over, colour=style.colour, width=1.4, cap=4.5)
    if critical.value is not None:
        ax.plot([critical.value], [row], marker=style.marker, color=style.colour, zorder=6,
                markeredgecolor=ground(), markeredgewidth=stroke(0.6), **options)  # fmt: skip


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
    if interval.low is None and interval.high is None:
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
            _critical(ax, fit, low * (low / high) ** (0.045 * (i + 0.3)), style)


def headings(ax: Axes, fit: Regimes, row: float) -> None:
    """The regimes' names above the strip at ``row``, where they fit."""
    low, high = ax.get_xlim()
    width, _ = inches(ax)
    for span in regime_spans(fit):
        space = width * np.log2(span.high / span.low) / np.log2(high / low)
        fitting = [name for name in NAMES[span.regime] if len(name) * _LETTER * unit() < space]
        if fitting:
            ax.text(
                np.sqrt(span.low * span.high), row + 0.46, fitting[0], ha="center", va="bottom",
                fontsize="x-small", color=ink(),
            )  # fmt: skip


def shade(ax: Axes, fit: Regimes) -> None:
    """The regimes of one curve as the shade of its panel."""
    grey = "#5b7fa3"
    for span in regime_spans(fit):
        ax.axvspan(
            span.low, span.high, zorder=0, linewidth=0,
            facecolor=tint(grey, SHADES[span.regime] * 0.5),
            edgecolor=tint(grey, 0.5), hatch=None if span.sure else HATCH,
        )  # fmt: skip
