"""Critical batch sizes and regimes of all curves, with intervals: a forest plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from analysis.curves.curve import Curve, is_baseline
from analysis.figure_data import FigureData
from analysis.figures.drawing import marks
from analysis.figures.drawing.colours import faint, grey, ground, ink, tint, visible
from analysis.figures.drawing.legends import entry, shared_legend
from analysis.figures.drawing.page import (
    COLUMN,
    TWO_COLUMNS,
    Page,
    mark,
    stroke,
    unit,
)
from analysis.figures.drawing.panels import curve_names, facets
from analysis.figures.drawing.style import BLUE, DASHES, figure_width, log2_axis, log10_axis
from analysis.figures.drawing.text_fit import distinct, fitted, within
from analysis.fit.comparisons import Comparison, compare, ratio_text
from analysis.fit.interval import QUANTITIES, Interval
from analysis.fit.regimes import Regimes
from analysis.formatting import interval, units
from results.errors import ResultsError

_ROW = 0.185
"""Inches of a row."""
_MANY = 12
"""Rows from which on a figure takes two columns."""
_WIDE = 5.0
"""Inches from which ratios are beside the batch sizes, not in their place."""
_ENDS = (("perfect_scaling_until", 0.24, 4), ("maximal_parallelism_from", -0.24, 5))
"""The ends of regimes beside the critical batch size: their distance above it in its row, and the
caret of its mark, which points away from diminishing returns."""
_LETTERS = 34, 20
"""Letters of a row's name that fit on one line: where the figure is wide, and narrow."""
_NAMES = 0.33
"""The part of the figure's width that the names of rows may take."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row: a curve, or with none the heading of those beneath."""

    text: str
    space: float = 0.0
    """Empty space above it, in rows."""
    curve: Curve | None = None
    fit: Regimes | None = None
    comparison: Comparison | None = None
    is_baseline: bool = False


def draw(data: FigureData, *, ax: Axes | None = None, page: Page | None = None) -> Axes:
    """A row a curve, by workload and target: its critical batch size with its interval, and
    paler the ends of perfect scaling (above) and of diminishing returns (beneath).

    The grey bar is what was tested: an interval that is open there ends in an arrow. The number at
    the right is the critical batch size. With a baseline a second panel has the ratio to its
    critical batch size (in place of the first, where the figure is narrow or ``ax`` is given).
    """
    page = page or Page()
    rows = _rows(data)
    baseline = data.query.baseline
    need = TWO_COLUMNS if baseline is not None or len(rows) > _MANY else COLUMN
    wide = page.usable(need) >= _WIDE
    rows = _fitted([replace(row, text=_wrapped(row, wide)) for row in rows], page.width(need))
    both = baseline is not None and ax is None and wide
    axes = (
        [ax] if ax is not None else _new_axes(rows, need, page, both or baseline is None, 1 + both)
    )
    if both or baseline is None:
        most = 5 if page.usable() >= _WIDE or len(rows) <= _MANY else 3
        _draw_batch_sizes(axes[0], rows, most)
        shared_legend(
            axes, _handles(rows),
            None if ax is None else {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": 2,
                                     "columnspacing": 1.2},
            ncols=4 if figure_width(axes[0]) > _WIDE else 2,
        )  # fmt: skip
    if baseline is not None:
        _draw_ratios(axes[-1], rows, str(baseline))
    _name_rows(axes[0], rows)
    for panel_ax in axes[1:]:
        panel_ax.tick_params(axis="y", length=0, labelleft=False)
        panel_ax.spines["left"].set_visible(False)
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
                    **_quantity(row, name).to_dict(),
                    "least_tested": row.curve.batch_sizes[0],
                    "largest_tested": row.curve.batch_sizes[-1],
                    "baseline": row.comparison.baseline if row.comparison else None,
                    **{f"ratio_{end}": value for end, value in ratio.to_dict().items()},
                }
            )
    return pd.DataFrame(table)


def _quantity(row: _Row, name: str = "critical_batch_size") -> Interval:
    interval: Interval = Interval() if row.fit is None else getattr(row.fit, name)
    return interval


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
    ordered = [replace(row, text=_full_name(row)) for row in sorted(alone, key=_order)]
    for rows in groups:
        ordered += [_Row(text=_title(rows[0]), space=0.5 if ordered else 0.0), *rows]
    return ordered


def _title(row: _Row) -> str:
    assert row.curve is not None
    target = row.curve.target
    workload = str(row.curve.group.get("workload") or row.curve.label)
    return workload if target is None else f"{workload} · {target}"


def _full_name(row: _Row) -> str:
    """A workload's only curve: its workload, training algorithm and target."""
    assert row.curve is not None
    workload, _, target = _title(row).partition(" · ")
    optimizer = row.curve.group.get("optimizer")
    first = f"{workload}, {optimizer}" if optimizer else workload
    return f"{first} · {target}" if target else first


def _order(row: _Row) -> float:
    """Where its critical batch size lies, as far as it is known; unknown ones come last."""
    nearest = _quantity(row).nearest
    return np.inf if nearest is None else nearest


def _new_axes(
    rows: Sequence[_Row], need: float, page: Page, legend: bool, count: int
) -> list[Axes]:
    height = _ROW * (_heights(rows)[0][0] + 1.6) + 0.42 + 0.3
    if any(row.fit is not None and marks.has_open_intervals(row.fit) for row in rows) and legend:
        height += 0.15
    _, axes = plt.subplots(
        1, count, sharey=True, squeeze=False, layout="constrained", figsize=page.size(need, height)
    )
    return list(axes[0])


def _draw_batch_sizes(ax: Axes, rows: Sequence[_Row], most: int) -> None:
    curves = [row.curve for row in rows if row.curve]
    sizes = [size for curve in curves for size in curve.batch_sizes]
    low, high = min(sizes), max(sizes)
    ax.set_xscale("log", base=2)
    ax.set_xlim(low / 1.3, high * 1.3)
    log2_axis(ax.xaxis, low, high, most=most)
    for height, row in _heights(rows):
        if row.curve is None:
            continue
        tested = row.curve.batch_sizes[0], row.curve.batch_sizes[-1]
        ax.plot(tested, [height, height], color=grey("#ededed"), linewidth=stroke(6.5),
                solid_capstyle="butt", zorder=1)  # fmt: skip
        for name, up, caret in _ENDS:
            _draw_interval(ax, _quantity(row, name), height + up, tested, colour=tint(ink(), 0.5),
                           width=0.7, marker=caret, size=3.4)  # fmt: skip
        _draw_interval(ax, _quantity(row), height, tested, colour=visible(BLUE))
        _annotate(ax, height, _number(row))
    ax.set_xlabel(f"batch size ({units(curve.example_unit for curve in curves)})")


def _draw_ratios(ax: Axes, rows: Sequence[_Row], baseline: str) -> None:
    ratios = [
        (height, row.comparison.ratios["critical_batch_size"])
        for height, row in _heights(rows)
        if row.comparison
    ]
    ends = [x for _, ratio in ratios for x in ratio.ends if x is not None]
    low, high = min([1.0, *ends]) / 1.25, max([1.0, *ends]) * 1.25
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    log10_axis(ax.xaxis, low, high, most=5)
    ax.axvline(1, color=faint(), linewidth=stroke(0.8), linestyle=DASHES, zorder=1)
    for height, ratio in ratios:
        _draw_interval(ax, ratio, height, (low, high), colour=visible(BLUE))
        _annotate(ax, height, ratio_text(ratio).replace("open", "unknown"))
    ax.set_xlabel(f"critical batch size over {baseline}'s")
    for height, row in _heights(rows):
        if row.is_baseline:
            ax.plot([1], [height], linestyle="none", marker="o", markersize=mark(4), zorder=5,
                    color=visible(BLUE), markerfacecolor=ground())  # fmt: skip
            _annotate(ax, height, "baseline")


def _heights(rows: Sequence[_Row]) -> list[tuple[float, _Row]]:
    """Each row's height over the last one; a name of two lines takes more space."""
    depth, depths = 0.0, []
    for i, row in enumerate(rows):
        more = 0.25 * row.text.count("\n")
        depth += (1 if i else 0) + row.space + more
        depths.append(depth)
        depth += more
    return [(depths[-1] - depth, row) for depth, row in zip(depths, rows, strict=True)]


def _draw_interval(
    ax: Axes,
    interval: Interval,
    height: float,
    span: tuple[float, float],
    *,
    colour: Any,
    width: float = 1.6,
    marker: Any = "o",
    size: float = 4,
) -> None:
    """A line from end to end, an arrow where it is open, its value marked."""
    arrow = {"markersize": 1.5 + 1.2 * width, "markeredgewidth": 0.0}
    marks.draw_interval(ax, interval, height, span, colour=colour, width=width, **arrow)
    if interval.value is not None:
        ax.plot([interval.value], [height], marker=marker, markersize=mark(size), color=colour,
                markeredgecolor=ground(), markeredgewidth=stroke(0.4), zorder=5)  # fmt: skip


def _annotate(ax: Axes, height: float, text: str) -> None:
    """To the right of the axes."""
    ax.annotate(
        text, (1, height), xycoords=ax.get_yaxis_transform(), xytext=(5 * unit(), 0),
        textcoords="offset points", va="center", ha="left", fontsize="small",
        annotation_clip=False,
    )  # fmt: skip


def _number(row: _Row) -> str:
    if row.fit is None:
        return "too few batch sizes"
    text = interval(*_quantity(row).ends, number=_rounded)
    return "unknown" if text == "open" else text


def _rounded(number: float) -> str:
    """Two significant digits, three from 100 on: 31, 2,080, 111k."""
    if number < 100:
        return f"{float(f'{number:.2g}'):g}"
    return f"{float(f'{number:.3g}'):,.0f}" if number < 10_000 else f"{number / 1000:.3g}k"


def _name_rows(ax: Axes, rows: Sequence[_Row]) -> None:
    heights = _heights(rows)
    ax.set_ylim(-0.7, heights[0][0] + 0.6)
    ticks = [(height, row.text) for height, row in heights if row.curve is not None]
    ax.set_yticks([height for height, _ in ticks], [text for _, text in ticks])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    for height, row in heights:
        if row.curve is None:
            ax.annotate(
                row.text, (0, height - 0.08), xycoords=ax.get_yaxis_transform(), fontsize="small",
                va="center", ha="left", color=ink(), fontweight="bold", annotation_clip=False,
            )  # fmt: skip


def _fitted(rows: Sequence[_Row], width: float) -> list[_Row]:
    """``rows`` with their names and headings as they fit in a figure so many inches wide."""
    names = [row.text for row in rows if row.curve is not None]
    texts = dict(zip(names, distinct(names, within(_NAMES * width), lines=2), strict=True))
    fits = within((1 - _NAMES) * width, "small")
    return [
        replace(row, text=fitted(row.text, fits) if row.curve is None else texts[row.text])
        for row in rows
    ]


def _wrapped(row: _Row, wide: bool) -> str:
    """A long name on two lines; where the figure is narrow, without the target of a curve that
    is alone (it is in the numbers)."""
    text = row.text
    if row.curve is None:
        return text
    if not wide:
        text = text.partition(" · ")[0]
    if len(text) <= _LETTERS[not wide]:
        return text
    breaks = [i + len(s) for s in (" · ", ", ") for i in range(len(text)) if text.startswith(s, i)]
    if not breaks:
        return text
    end = min(breaks, key=lambda i: abs(i - len(text) / 2))
    return text[:end].rstrip(" ·,") + "\n" + text[end:]


def _handles(rows: Sequence[_Row]) -> list[Artist]:
    level = next(row.fit.level for row in rows if row.fit)
    pale: dict[str, Any] = {"linestyle": "-", "color": tint(ink(), 0.5)}
    handles: list[Artist] = [
        entry(f"critical batch size, {100 * level:g} %", color=visible(BLUE), linestyle="-",
              linewidth=1.6, marker="o", markersize=4, markeredgecolor=ground(),
              markeredgewidth=0.4),
        entry("tested", color=grey("#ededed"), linewidth=6.5, solid_capstyle="butt"),
        entry("perfect scaling until", marker=4, linewidth=0.7, markersize=3.4, **pale),
        entry("maximal from", marker=5, linewidth=0.7, markersize=3.4, **pale),
    ]  # fmt: skip
    if any(row.fit is not None and marks.has_open_intervals(row.fit) for row in rows):
        handles.append(entry("open end of an interval", marker=">", markeredgewidth=0,
                             markersize=3, color=pale["color"]))  # fmt: skip
    return handles
