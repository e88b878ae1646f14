"""The three regimes of each curve, as a strip over batch sizes or as the shade of a panel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from analysis.figures.drawing.colours import ground, ink, tint
from analysis.figures.drawing.page import mark, stroke, unit
from analysis.figures.drawing.style import Look, inches
from analysis.fit.reference_lines import regime_spans
from analysis.fit.regimes import Interval, Regimes

SHADES = (0.50, 0.24, 0.08)
"""How much of the colour each regime keeps, perfect scaling first: told apart without colour."""

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
    ax: Axes, regimes: Sequence[Regimes | None], labels: Sequence[str], looks: Sequence[Look]
) -> None:
    """One strip a curve: its regimes, the intervals of their ends, and the critical batch size."""
    count = len(regimes)
    for i, (found, look) in enumerate(zip(regimes, looks, strict=True)):
        row = count - 1 - i
        if found is None:
            ax.text(0.5, row, "too few batch sizes", transform=ax.get_yaxis_transform(),
                    ha="center", va="center", fontsize="x-small")  # fmt: skip
            continue
        for one in regime_spans(found):
            ax.barh(
                row, one.high - one.low, left=one.low, height=0.84, zorder=2,
                color=tint(look.colour, SHADES[one.regime]),
                edgecolor=ground() if one.sure else tint(look.colour, 0.75),
                hatch=None if one.sure else HATCH, linewidth=0,
            )  # fmt: skip
        # One above the other: wide intervals overlap.
        _whisker(ax, found.perfect_scaling_until, row + 0.23, found, colour=ink(), width=0.7)
        _whisker(ax, found.maximal_parallelism_from, row - 0.23, found, colour=ink(), width=0.7)
        _whisker(ax, found.critical_batch_size, row, found, colour=look.colour, width=1.4, cap=4.5)
        if found.critical_batch_size.value is not None:
            ax.plot(
                [found.critical_batch_size.value], [row], marker=look.marker, markersize=mark(4),
                color=look.colour, markeredgecolor=ground(), markeredgewidth=stroke(0.6), zorder=6,
            )  # fmt: skip
    ax.set_ylim(-0.6, count - 0.4)
    ax.set_yticks(range(count), [_two_lines(label) for label in labels][::-1])
    ax.tick_params(axis="y", length=0, pad=3)
    for spine in ("left", "top", "right"):
        ax.spines[spine].set_visible(False)


def _two_lines(label: str) -> str:
    return label if "\n" in label else label.replace(", ", ",\n")


def _whisker(
    ax: Axes,
    end: Interval,
    row: float,
    found: Regimes,
    *,
    colour: str,
    width: float,
    cap: float = 3.0,
) -> None:
    """An interval on one strip: a line with caps, an arrow where it is open."""
    if end.low is None and end.high is None:
        return
    first, last = found.fitted_over
    low = first if end.low is None else end.low
    high = last if end.high is None else end.high
    halo = [withStroke(linewidth=stroke(width + 1.1), foreground=ground())]
    ax.plot([low, high], [row, row], color=colour, linewidth=stroke(width), zorder=4,
            solid_capstyle="butt", path_effects=halo)  # fmt: skip
    for x in (end.low, end.high):
        if x is not None:
            ax.plot([x], [row], marker="|", markersize=mark(cap),
                    markeredgewidth=stroke(width * 0.8), color=colour, zorder=4)  # fmt: skip
    for x, is_open, marker in ((low, end.low is None, "<"), (high, end.high is None, ">")):
        if is_open:
            ax.plot(
                [x],
                [row],
                marker=marker,
                markersize=mark(2.5),
                color=colour,
                zorder=4,
                clip_on=False,
            )


def strips_are_open(found: Regimes) -> bool:
    """Whether an interval of its strip has an arrow in the place of an end."""
    drawn = (found.perfect_scaling_until, found.maximal_parallelism_from, found.critical_batch_size)
    return any((one.low is None) != (one.high is None) for one in drawn)


def criticals(ax: Axes, regimes: Sequence[Regimes | None], looks: Sequence[Look]) -> None:
    """The critical batch sizes with their intervals along the bottom of a panel that has no
    strips beneath it."""
    low, high = ax.get_ylim()
    ax.set_ylim(low * (low / high) ** (0.045 * len(regimes)), high)
    for i, (found, look) in enumerate(zip(regimes, looks, strict=True)):
        if found is None or found.critical_batch_size.value is None:
            continue
        row = low * (low / high) ** (0.045 * (i + 0.3))
        _whisker(ax, found.critical_batch_size, row, found, colour=look.colour, width=1.4, cap=4.5)
        ax.plot([found.critical_batch_size.value], [row], marker=look.marker, color=look.colour,
                markeredgecolor=ground(), markeredgewidth=stroke(0.6), zorder=6)  # fmt: skip


def headings(ax: Axes, found: Regimes, row: float) -> None:
    """The regimes' names over the strip at ``row``, where they have room."""
    low, high = ax.get_xlim()
    width, _ = inches(ax)
    for one in regime_spans(found):
        room = width * np.log2(one.high / one.low) / np.log2(high / low)
        fitting = [name for name in NAMES[one.regime] if len(name) * _LETTER * unit() < room]
        if fitting:
            ax.text(
                np.sqrt(one.low * one.high), row + 0.46, fitting[0], ha="center", va="bottom",
                fontsize="x-small", color=ink(),
            )  # fmt: skip


def shade(ax: Axes, found: Regimes) -> None:
    """The regimes of one curve as the shade of its panel, with the critical batch size."""
    grey = "#5b7fa3"
    for one in regime_spans(found):
        ax.axvspan(
            one.low, one.high, zorder=0, linewidth=0,
            facecolor=tint(grey, SHADES[one.regime] * 0.5),
            edgecolor=tint(grey, 0.5), hatch=None if one.sure else HATCH,
        )  # fmt: skip
