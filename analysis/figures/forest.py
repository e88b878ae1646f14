"""Critical batch sizes and regimes of all curves, with intervals: a forest plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis.curves.curve import Curve, is_baseline
from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, grey, ground, ink, tint, visible
from analysis.figures.drawing.facets import curve_names, facets
from analysis.figures.drawing.page import COLUMN, TWO_COLUMNS, Page
from analysis.figures.drawing.rows import name_rows
from analysis.figures.drawing.style import BLUE, DASHES, log2_axis, log10_axis
from analysis.figures.drawing.text_fit import fitted, within
from analysis.fit.comparisons import Comparison, compare, ratio_text
from analysis.fit.interval import QUANTITIES, Interval
from analysis.fit.regimes import Regimes
from analysis.formatting import interval, units
from results.errors import ResultsError

_MANY = 12
"""Rows from which on a figure takes two columns."""
_WIDE = 5.0
"""Inches from which ratios are beside the batch sizes, not in their place."""
_ENDS: Any = (("perfect_scaling_until", 0.24, 4), ("maximal_parallelism_from", -0.24, 5))
"""The ends of regimes beside the critical batch size: their distance above it in its row, and the
caret of its mark, which points away from diminishing returns."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row: a curve, or with none the heading of those beneath."""

    text: str
    curve: Curve | None = None
    fit: Regimes | None = None
    comparison: Comparison | None = None
    is_baseline: bool = False

    def quantity(self, name: str = "critical_batch_size") -> Interval:
        interval: Interval = Interval() if self.fit is None else getattr(self.fit, name)
        return interval


def draw(data: FigureData, *, page: Page) -> Axes:
    """A row a curve, by workload and target: its critical batch size with its interval, and
    paler the ends of perfect scaling (above) and of diminishing returns (beneath).

    The grey bar is what was tested: an interval that is open there ends in an arrow. The number at
    the right is the critical batch size. With a baseline a second panel has the ratio to its
    critical batch size (in place of the first, where the figure is narrow or ``ax`` is given).
    """
    rows, baseline = _rows(data), data.query.baseline
    need = TWO_COLUMNS if baseline is not None or len(rows) > _MANY else COLUMN
    wide = page.ax is None and (page.inches or need) >= _WIDE
    # The target of a curve that is alone is in the numbers, where the figure is narrow.
    texts = [row.text if wide or not row.curve else row.text.partition(" · ")[0] for row in rows]
    named = [(text, row.curve is None) for text, row in zip(texts, rows, strict=True)]
    axes = name_rows(page, named, 1 + (wide and baseline is not None), need)
    if wide or baseline is None:
        _draw_batch_sizes(axes[0], rows)
    if baseline is not None:
        _draw_ratios(axes[-1], rows, fitted(f"critical batch size over {baseline}'s", within(2), 3))
    if wide or baseline is None:
        page.legend(axes, _handles(rows))
    return axes[0]


def numbers(data: FigureData) -> pd.DataFrame:
    """A row a curve and quantity, in the order of the figure: value and interval, the range that
    was tested, and the ratio to the baseline where there is one."""
    table = []
    for row in _rows(data):
        if row.curve is None:
            continue
        for name in QUANTITIES:
            ratio = row.comparison.ratios[name] if row.comparison else Interval()
            table.append(
                {
                    "curve": row.curve.label,
                    "workload": row.curve.group.get("workload"),
                    "target": None if row.curve.target is None else str(row.curve.target),
                    "quantity": name,
                    **row.quantity(name).to_dict(),
                    "least_tested": row.curve.batch_sizes[0],
                    "largest_tested": row.curve.batch_sizes[-1],
                    "baseline": row.comparison.baseline if row.comparison else None,
                    **{f"ratio_{end}": value for end, value in ratio.to_dict().items()},
                }
            )
    return pd.DataFrame(table)


def _rows(data: FigureData) -> list[_Row]:
    """Top to bottom: workloads in the order of their smallest critical batch size, and the curves
    of each in that of theirs, a baseline first; a workload of one curve needs no heading."""
    curves, regimes, baseline = data.curves, data.regimes, data.query.baseline
    if not any(regimes):
        raise ResultsError(
            "no regimes to compare",
            hint="each curve needs three batch sizes that reached the target",
        )
    comparisons: dict[int, Comparison | None] = {}
    if baseline is not None:
        compared = compare(curves, regimes, baseline)
        comparisons = {id(curve): c for curve, c in zip(curves, compared, strict=True)}
    alone, groups = [], []
    for pairs in facets(data.pairs):
        rows = [
            _Row(
                text=name,
                curve=curve,
                fit=fit,
                comparison=comparisons.get(id(curve)),
                is_baseline=baseline is not None and is_baseline(curve, baseline),
            )
            for (curve, fit), name in zip(pairs, curve_names(pairs), strict=True)
        ]
        if len(rows) == 1:
            alone += rows
        else:
            groups.append(sorted(rows, key=lambda row: (not row.is_baseline, _order(row))))
    if not alone and len(groups) == 1:
        return groups[0]
    groups.sort(key=lambda rows: min(map(_order, rows)))
    ordered = [replace(row, text=_title(row, "optimizer")) for row in sorted(alone, key=_order)]
    for rows in groups:
        ordered += [_Row(text=_title(rows[0])), *rows]
    return ordered


def _title(row: _Row, *more: str) -> str:
    """A workload, what ``more`` of a curve names it, and its target."""
    assert row.curve is not None
    named = [str(row.curve.group.get("workload") or row.curve.label)]
    named += [str(row.curve.group[name]) for name in more if row.curve.group.get(name)]
    target = [] if row.curve.target is None else [str(row.curve.target)]
    return " · ".join([", ".join(named), *target])


def _order(row: _Row) -> float:
    """Where its critical batch size lies, as far as it is known; unknown ones come last."""
    nearest = row.quantity().nearest
    return np.inf if nearest is None else nearest


def _draw_batch_sizes(ax: Axes, rows: Sequence[_Row]) -> None:
    curves = [row.curve for row in rows if row.curve]
    sizes = [size for curve in curves for size in curve.batch_sizes]
    ax.set_xscale("log", base=2)
    ax.set_xlim(min(sizes) / 1.3, max(sizes) * 1.3)
    log2_axis(ax.xaxis, min(sizes), max(sizes), most=4)
    for height, row in enumerate(rows[::-1]):
        if row.curve is None:
            continue
        tested = row.curve.batch_sizes[0], row.curve.batch_sizes[-1]
        ax.plot(tested, [height, height], color=grey("#ededed"), linewidth=6.5,
                solid_capstyle="butt", zorder=1)  # fmt: skip
        for name, up, caret in _ENDS:
            marks.mark_interval(ax, row.quantity(name), height + up, tested, linewidth=0.7,
                                color=tint(ink(), 0.5), marker=caret, markersize=3.4)  # fmt: skip
        marks.mark_interval(ax, row.quantity(), height, tested, color=visible(BLUE))
        _annotate(ax, height, interval(*row.quantity().ends) if row.fit else "too few batch sizes")
    ax.set_xlabel(f"batch size ({units(curve.example_unit for curve in curves)})")


def _draw_ratios(ax: Axes, rows: Sequence[_Row], name: str) -> None:
    ratios = [
        (height, row.comparison.ratios["critical_batch_size"])
        for height, row in enumerate(rows[::-1])
        if row.comparison
    ]
    ends = [x for _, ratio in ratios for x in ratio.ends if x is not None]
    span = min([1.0, *ends]) / 1.25, max([1.0, *ends]) * 1.25
    ax.set_xscale("log")
    ax.set_xlim(span)
    log10_axis(ax.xaxis, *span, most=4)
    ax.axvline(1, color=faint(), linewidth=0.8, linestyle=DASHES, zorder=1)
    for height, ratio in ratios:
        marks.mark_interval(ax, ratio, height, span, color=visible(BLUE))
        _annotate(ax, height, ratio_text(ratio))
    for height, row in enumerate(rows[::-1]):
        if row.is_baseline:
            ax.plot([1], [height], linestyle="none", marker="o", zorder=5, color=visible(BLUE),
                    markerfacecolor=ground())  # fmt: skip
            _annotate(ax, height, "baseline")
    ax.set_xlabel(name)


def _annotate(ax: Axes, height: float, text: str) -> None:
    """To the right of the axes."""
    ax.annotate(
        text, (1, height), xycoords=ax.get_yaxis_transform(), xytext=(5, 0), va="center",
        textcoords="offset points", fontsize="small", annotation_clip=False,
    )  # fmt: skip


def _handles(rows: Sequence[_Row]) -> list[Artist]:
    level = next(row.fit.level for row in rows if row.fit)
    pale: dict[str, Any] = {"linestyle": "-", "color": tint(ink(), 0.5)}
    handles: list[Artist] = [
        marks.entry(f"critical batch size, {100 * level:g} %", color=visible(BLUE), linestyle="-",
                    linewidth=1.6, marker="o", markeredgecolor=ground(), markeredgewidth=0.4),
        marks.entry("tested", color=grey("#ededed"), linewidth=6.5, solid_capstyle="butt"),
        marks.entry("perfect scaling until", marker=4, linewidth=0.7, markersize=3.4, **pale),
        marks.entry("maximal from", marker=5, linewidth=0.7, markersize=3.4, **pale),
    ]  # fmt: skip
    if any(row.fit is not None and marks.has_open_intervals(row.fit) for row in rows):
        handles.append(marks.entry("open end of an interval", marker=">", markeredgewidth=0,
                                   markersize=3, color=pale["color"]))  # fmt: skip
    return handles
