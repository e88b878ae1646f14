"""Every technique and optimizer against the plain one: ratios with intervals"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, grey, ground, ink, tint, visible
from analysis.figures.drawing.legends import entry, shared_legend
from analysis.figures.drawing.page import TWO_COLUMNS, Page, mark, stroke
from analysis.figures.drawing.style import BLUE, DASHES, log10_axis
from analysis.figures.drawing.text_fit import distinct, fitted, within
from analysis.fit.interval import Interval
from analysis.formatting import units
from analysis.techniques.table import RATIOS, Ratio, Row, Table, table

_ROW, _TALL_ROW = 0.17, 0.27
"""Inches of a row, and of one where names take two lines."""
_NAMES = 0.24
"""The part of the figure's width that the names of rows may take."""
_PANEL = 1.15
"""Least inches of a panel."""
_TITLES = {
    "critical_batch_size": "critical batch size",
    "perfect_scaling_until": "perfect until",
    "min_steps": "least steps",
    "min_examples": "fewest {}",
}
_WIDEST = 30.0
"""Largest distance of an axis from 1; an interval that goes further ends in an arrow."""


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A row of the figure: a technique, or with none the heading of those beneath."""

    text: str
    row: Row | None = None


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
    """A row a technique, schedule or optimizer, a panel a quantity: its ratio to the baseline.

    A filled mark is a ratio whose interval, corrected for all of the figure, leaves out 1. An arrow
    is an open end. Not tested is what began after most best trials had reached the target. In a
    narrow figure, or on a given ``ax``, the first quantities alone.
    """
    page = page or Page()
    made: Table = data.computed(table)
    lines, unit = _lines(made), units(row.curve.example_unit for row in made.rows)
    usable = page.usable(TWO_COLUMNS)
    count = 1 if ax is not None else min(len(RATIOS), max(1, int(usable * (1 - _NAMES) / _PANEL)))
    names = _names(lines, page.width(TWO_COLUMNS))
    row = _TALL_ROW if any("\n" in name for name in names) else _ROW
    axes = [ax] if ax is not None else _new_axes(row * (len(lines) + 1.2), page, count)
    for panel_ax, name in zip(axes, RATIOS, strict=False):
        _draw_quantity(panel_ax, lines, name, unit)
    _name_rows(axes[0], lines, names, (1 - _NAMES) * page.width(TWO_COLUMNS) / len(axes))
    shared_legend(
        axes, _handles(made),
        None if ax is None else {"loc": "lower left", "bbox_to_anchor": (0, 1.0)}, ncols=1,
        fontsize="small",
    )  # fmt: skip
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a technique and quantity: the ratio with its interval, p, and p corrected."""
    made: Table = data.computed(table)
    return pd.DataFrame(
        [
            {
                "technique": row.name,
                "baseline": row.baseline,
                "curve": row.curve.label,
                "workload": row.curve.group.get("workload"),
                "target": None if row.curve.target is None else str(row.curve.target),
                "active": row.active.share,
                "quantity": name,
                **{f"ratio_{end}": value for end, value in ratio.interval.to_dict().items()},
                "p": ratio.p,
                "p_corrected": ratio.corrected,
                "correction": made.correction.name,
                "compared": made.compared,
            }
            for row in made.rows
            for name, ratio in row.ratios.items()
        ]
    )


def _lines(made: Table) -> list[_Line]:
    """Rows by baseline and workload, in the order of the table; headings where there are several.

    Within a baseline the rows stand by their critical batch sizes, unknown ones last.
    """
    groups: dict[str, list[Row]] = {}
    targets: dict[str, set[str]] = {}
    for row in made.rows:
        targets.setdefault(_heading(row), set()).add(str(row.curve.target))
    for row in made.rows:
        heading = _heading(row)
        if len(targets[heading]) > 1:
            heading += f", {row.curve.target}"
        groups.setdefault(heading, []).append(row)
    lines = []
    for heading, rows in groups.items():
        lines.append(_Line(text=heading))
        lines += [_Line(text=_name(row), row=row) for row in sorted(rows, key=_order)]
    return lines


def _name(row: Row) -> str:
    return row.name if row.active.tested else f"{row.name} (not tested)"


def _heading(row: Row) -> str:
    return f"over {row.baseline}" if row.baseline else f"{row.curve.group.get('workload')}"


def _order(row: Row) -> float:
    nearest = row.ratios["critical_batch_size"].interval.nearest
    return -1.0 if nearest is None else -nearest


def _new_axes(height: float, page: Page, count: int) -> list[Axes]:
    _, axes = plt.subplots(
        1, count, sharey=True, squeeze=False, layout="constrained",
        figsize=page.size(TWO_COLUMNS, height + 1.05),
    )  # fmt: skip
    return list(axes[0])


def _draw_quantity(ax: Axes, lines: Sequence[_Line], name: str, unit: str) -> None:
    ratios = [
        (height, line.row.ratios[name]) for height, line in _heights(lines) if line.row is not None
    ]
    ends = [end for _, ratio in ratios for end in ratio.interval.ends if end is not None]
    low = max(min([0.5, *ends]) / 1.25, 1 / _WIDEST)
    high = min(max([2.0, *ends]) * 1.25, _WIDEST)
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    log10_axis(ax.xaxis, low, high, most=3)
    ax.axvline(1, color=faint(), linewidth=stroke(0.8), linestyle=DASHES, zorder=1)
    for height, ratio in ratios:
        ax.axhline(height, color=grey("#ededed"), linewidth=stroke(0.6), zorder=0)
        _draw_ratio(ax, ratio, height, (low, high))
    ax.set_title(_TITLES[name].format(unit), fontsize="medium")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("ratio")


def _draw_ratio(ax: Axes, ratio: Ratio, height: float, span: tuple[float, float]) -> None:
    """Its interval as far as the axis goes, filled where it differs from 1."""
    interval = _inside(ratio.interval, span)
    if interval.low is None and interval.high is None:
        ax.annotate("open", (1, height), ha="center", va="center", fontsize="x-small",
                    color=tint(ink(), 0.8), bbox={"facecolor": ground(), "edgecolor": "none",
                                                  "pad": 0.5})  # fmt: skip
        return
    clear = ratio.differs(0.9)
    colour = visible(BLUE) if clear else tint(ink(), 0.65)
    width = 1.6 if clear else 1.0
    marks.draw_interval(ax, interval, height, span, colour=colour, width=width,
                        markersize=1.5 + 1.2 * width, markeredgewidth=0.0)  # fmt: skip
    if interval.value is not None and span[0] < interval.value < span[1]:
        ax.plot([interval.value], [height], marker="o", markersize=mark(4), linestyle="none",
                color=colour, markerfacecolor=colour if clear else ground(),
                markeredgewidth=stroke(0.9), zorder=5)  # fmt: skip


def _inside(interval: Interval, span: tuple[float, float]) -> Interval:
    """With an end that lies outside of the axis drawn as an open one."""
    low, high = interval.low, interval.high
    return Interval(
        value=interval.value,
        low=None if low is not None and low < span[0] else low,
        high=None if high is not None and high > span[1] else high,
    )


def _heights(lines: Sequence[_Line]) -> list[tuple[float, _Line]]:
    return [(float(len(lines) - 1 - i), line) for i, line in enumerate(lines)]


def _names(lines: Sequence[_Line], width: float) -> list[str]:
    """The names of the rows beneath headings, on two lines where they are long."""
    texts = [line.text for line in lines if line.row is not None]
    return distinct(texts, within(_NAMES * width), lines=2)


def _name_rows(ax: Axes, lines: Sequence[_Line], names: Sequence[str], panel: float) -> None:
    """Write the names, and headings as wide as a ``panel`` at most, in inches."""
    heights = _heights(lines)
    ax.set_ylim(-0.7, heights[0][0] + 0.6)
    ax.set_yticks([height for height, line in heights if line.row is not None], list(names))
    for height, line in heights:
        if line.row is None:
            heading = ax.annotate(
                fitted(line.text, within(panel, "small")), (0, height - 0.08),
                xycoords=ax.get_yaxis_transform(), fontsize="small",
                va="center", ha="left", color=tint(ink(), 0.8), annotation_clip=False,
                bbox={"facecolor": ground(), "edgecolor": "none", "pad": 0.5}, zorder=6,
            )  # fmt: skip
            heading.set_in_layout(False)


def _handles(made: Table) -> list[Artist]:
    pale: Mapping[str, Any] = {"color": tint(ink(), 0.65), "linestyle": "-"}
    return [
        entry(f"differs from 1: p ≤ 0.1, {made.correction.text.format(f'{made.compared} ratios')}",
              color=visible(BLUE), linestyle="-", linewidth=1.6, marker="o", markersize=4),
        entry(f"cannot be distinguished from 1; all intervals are at {made.level:.0%}", marker="o",
              markersize=4, linewidth=1.0, markerfacecolor=ground(), **pale),
    ]  # fmt: skip
