"""Every technique and optimizer against the plain one: ratios with intervals"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, grey, ground, ink, tint, visible
from analysis.figures.drawing.page import TWO_COLUMNS, Page
from analysis.figures.drawing.rows import name_rows
from analysis.figures.drawing.style import BLUE, DASHES, log10_axis
from analysis.formatting import units
from analysis.techniques.table import RATIOS, Ratio, Row, Table, table

_PANEL = 1.4
"""Inches of a panel, with its part of the rows' names."""
_TITLES = {
    "critical_batch_size": "critical batch size",
    "perfect_scaling_until": "perfect until",
    "min_steps": "least steps",
    "min_examples": "fewest {}",
}
_WIDEST = 30.0
"""Largest distance of an axis from 1; an interval that goes further ends in an arrow."""


def draw(data: FigureData, *, page: Page) -> Axes:
    """A row a technique, schedule or optimizer, a panel a quantity: its ratio to the baseline.

    A filled mark is a ratio whose interval, corrected for all of the figure, leaves out 1. An arrow
    is an open end. Not tested is what began after most best trials had reached the target. In a
    narrow figure, or on a given ``ax``, the first quantities alone.
    """
    made: Table = data.computed(table)
    lines, unit = _lines(made), units(row.curve.example_unit for row in made.rows)
    wide = int((page.inches or TWO_COLUMNS) / _PANEL)
    count = 1 if page.ax is not None else min(len(RATIOS), max(1, wide - 1))
    axes = name_rows(page, [(text, row is None) for text, row in lines], count)
    for ax, name in zip(axes, RATIOS, strict=False):
        _draw_quantity(ax, [(i, row.ratios[name]) for i, (_, row) in enumerate(lines[::-1]) if row])
        page.title(ax, _TITLES[name].format(unit), color=ink())
        ax.set_xlabel("ratio")
    page.legend(axes, _handles(made))
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


def _lines(made: Table) -> list[tuple[str, Row | None]]:
    """Rows by baseline and workload, in the order of the table, under headings (which are no rows).

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
    lines: list[tuple[str, Row | None]] = []
    for heading, rows in groups.items():
        lines.append((heading, None))
        lines += [(_name(row), row) for row in sorted(rows, key=_order)]
    return lines


def _name(row: Row) -> str:
    return row.name if row.active.tested else f"{row.name} (not tested)"


def _heading(row: Row) -> str:
    return f"over {row.baseline}" if row.baseline else f"{row.curve.group.get('workload')}"


def _order(row: Row) -> float:
    nearest = row.ratios["critical_batch_size"].interval.nearest
    return -1.0 if nearest is None else -nearest


def _draw_quantity(ax: Axes, ratios: Sequence[tuple[int, Ratio]]) -> None:
    ends = [end for _, ratio in ratios for end in ratio.interval.ends if end is not None]
    low = max(min([0.5, *ends]) / 1.25, 1 / _WIDEST)
    high = min(max([2.0, *ends]) * 1.25, _WIDEST)
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    log10_axis(ax.xaxis, low, high, most=3)
    ax.axvline(1, color=faint(), linewidth=0.8, linestyle=DASHES, zorder=1)
    for height, ratio in ratios:
        ax.axhline(height, color=grey("#ededed"), linewidth=0.6, zorder=0)
        if ratio.interval.is_open:
            ax.annotate("open", (1, height), ha="center", va="center", fontsize="x-small",
                        bbox={"facecolor": ground(), "edgecolor": "none", "pad": 0.5})  # fmt: skip
        marks.mark_interval(ax, ratio.interval, height, (low, high), **_mark(ratio.differs(0.9)))


def _mark(differs: bool) -> dict[str, Any]:
    """Filled and blue where a ratio differs from 1."""
    if differs:
        return {"color": visible(BLUE), "linewidth": 1.6}
    pale = tint(ink(), 0.65)
    return {"color": pale, "linewidth": 1.0, "markerfacecolor": ground(), "markeredgecolor": pale,
            "markeredgewidth": 0.9}  # fmt: skip


def _handles(made: Table) -> list[Artist]:
    correction = made.correction.text.format(f"{made.compared} ratios")
    alike = f"cannot be distinguished from 1; all intervals are at {made.level:.0%}"
    line: Any = {"linestyle": "-", "marker": "o"}
    return [
        marks.entry(f"differs from 1: p ≤ 0.1, {correction}", **line, **_mark(True)),
        marks.entry(alike, **line, **_mark(False)),
    ]
