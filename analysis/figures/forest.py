"""Regimes with their intervals, compared across curves: a forest plot of critical batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.curves.curve import Curve, is_baseline
from analysis.figure_data import FigureData
from analysis.figures.drawing.colours import faint, grey, ground, ink, seen, tint
from analysis.figures.drawing.facets import facets, names
from analysis.figures.drawing.page import (
    COLUMN,
    TWO_COLUMNS,
    context,
    mark,
    room,
    stroke,
    tall,
    unit,
    width,
)
from analysis.figures.drawing.style import LOOKS, log2_axis, log10_axis
from analysis.figures.drawing.text_fit import apart, fitted, within
from analysis.fit.comparisons import Comparison, compare, ratio_text
from analysis.fit.knee import QUANTITIES
from analysis.fit.regimes import Interval, Regimes
from analysis.formatting import units
from results.errors import ResultsError

_ROW = 0.185
"""Inches of a row."""
_MANY = 12
"""Rows from which on a figure takes two columns."""
_WIDE = 5.0
"""Inches from which on ratios stand beside the batch sizes, not in their place."""
_COLOUR = LOOKS[0].colour
_ENDS = (("perfect_scaling_until", 0.24, 4), ("maximal_parallelism_from", -0.24, 5))
"""What stands beside the critical batch size: how far above it in its row, and the caret of its
mark, which points away from diminishing returns."""
_DRAWN = ("critical_batch_size", *(name for name, _, _ in _ENDS))
_LONG = 34, 20
"""Letters of a row's name that one line has room for: where the figure is wide, and narrow."""
_NAMES = 0.33
"""The part of the figure's width that the names of rows may take, and"""
_NUMBERS = 0.24
"""that the numbers at the right take."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row: a curve, or with none the heading of those beneath."""

    text: str
    top: float = 0.0
    """Room above it, in rows."""
    curve: Curve | None = None
    found: Regimes | None = None
    against: Comparison | None = None
    base: bool = False


def draw(shown: FigureData, *, ax: Axes | None = None) -> Axes:
    """A row a curve, by workload and target: its critical batch size with its interval, and
    paler the ends of perfect scaling (above) and of diminishing returns (beneath).

    The grey bar is what was tested: an interval that is open there ends in an arrow. The number at
    the right is the critical batch size. With a baseline a second panel has the ratio to its
    critical batch size (in place of the first, where there is room for one or ``ax`` is given).
    """
    rows = _rows(shown)
    compared = shown.query.baseline is not None
    with context():
        need = TWO_COLUMNS if compared or len(rows) > _MANY else COLUMN
        rows = _fitted(
            [replace(row, text=_wrapped(row, room(need) >= _WIDE)) for row in rows], need
        )
        height = (_ROW * (_at(rows)[0][0] + 1.6) + 0.42 + 0.3) * unit()
        both = compared and ax is None and room(need) >= _WIDE
        if _open(rows) and not (compared and not both):
            height += 0.15 * unit()
        if ax is not None:
            axes = [ax]
        else:
            _, made = plt.subplots(
                1, 1 + both, sharey=True, squeeze=False, layout="constrained",
                figsize=(width(need), tall(height)),
            )  # fmt: skip
            axes = list(made[0])
        if both or not compared:
            _batch_sizes(axes[0], rows)
        if compared:
            _ratios(axes[-1], rows, str(shown.query.baseline))
        _names(axes[0], rows)
        for one in axes[1:]:
            one.tick_params(axis="y", length=0, labelleft=False)
            one.spines["left"].set_visible(False)
        _legend(axes, rows, compared=compared, both=both, alone=ax is not None)
    return axes[0]


def numbers(shown: FigureData) -> pd.DataFrame:
    """A row a curve and quantity, as they stand in the figure: value and interval, the range that
    was tested, and the ratio to the baseline where there is one."""
    found = []
    for row in _rows(shown):
        if row.curve is None:
            continue
        for name in QUANTITIES:
            one = _quantity(row.found, name)
            ratio = row.against.ratios[name] if row.against else Interval(**_UNKNOWN)
            found.append(
                {
                    "curve": row.curve.label,
                    "workload": row.curve.group.get("workload"),
                    "target": None if row.curve.target is None else str(row.curve.target),
                    "quantity": name,
                    **one.to_dict(),
                    "least_tested": row.curve.batch_sizes[0],
                    "largest_tested": row.curve.batch_sizes[-1],
                    "baseline": row.against.baseline if row.against else None,
                    **{f"ratio_{end}": value for end, value in ratio.to_dict().items()},
                }
            )
    return pd.DataFrame(found)


_UNKNOWN: dict[str, Any] = {"value": None, "low": None, "high": None}


def _quantity(found: Regimes | None, name: str) -> Interval:
    one: Interval = Interval(**_UNKNOWN) if found is None else getattr(found, name)
    return one


def _rows(shown: FigureData) -> list[_Row]:
    """Top to bottom: workloads in the order of their smallest critical batch size, and the curves
    of each in that of theirs, a baseline first; a workload of one curve needs no heading."""
    curves, regimes = shown.curves, shown.regimes
    if not any(regimes):
        raise ResultsError(
            "no regimes to compare",
            hint="each curve needs three batch sizes that reached the target",
        )
    baseline = shown.query.baseline
    against: Sequence[Comparison | None] = [None] * len(curves)
    if baseline is not None:
        against = compare(curves, regimes, baseline)
    held = {id(curve): one for curve, one in zip(curves, against, strict=True)}
    alone, groups = [], []
    for pairs in facets(curves, regimes):
        rows = [
            _Row(
                text=text,
                curve=curve,
                found=found,
                against=held[id(curve)],
                base=baseline is not None and is_baseline(curve, baseline),
            )
            for (curve, found), text in zip(pairs, names(pairs), strict=True)
        ]
        if len(rows) == 1:
            alone.append(rows[0])
        else:
            groups.append(sorted(rows, key=lambda row: (not row.base, _place(row))))
    if not alone and len(groups) == 1:
        return groups[0]
    groups.sort(key=lambda rows: min(_place(row) for row in rows))
    found = [replace(row, text=_named(row)) for row in sorted(alone, key=_place)]
    for rows in groups:
        found += [_Row(text=_title(rows[0]), top=0.5 if found else 0.0), *rows]
    return found


def _title(row: _Row) -> str:
    assert row.curve is not None
    target = row.curve.target
    workload = str(row.curve.group.get("workload") or row.curve.label)
    return workload if target is None else f"{workload} · {target}"


def _named(row: _Row) -> str:
    """A workload's only curve: its workload, training algorithm and target."""
    assert row.curve is not None
    workload, _, target = _title(row).partition(" · ")
    optimizer = row.curve.group.get("optimizer")
    first = f"{workload}, {optimizer}" if optimizer else workload
    return f"{first} · {target}" if target else first


def _place(row: _Row) -> float:
    """Where its critical batch size lies, as far as it is known; unknown ones come last."""
    one = _quantity(row.found, "critical_batch_size")
    return next((x for x in (one.value, one.low, one.high) if x is not None), np.inf)


def _batch_sizes(ax: Axes, rows: Sequence[_Row]) -> None:
    sizes = [size for row in rows if row.curve for size in row.curve.batch_sizes]
    low, high = min(sizes), max(sizes)
    ax.set_xscale("log", base=2)
    ax.set_xlim(low / 1.3, high * 1.3)
    log2_axis(ax.xaxis, low, high, most=5 if room() >= _WIDE or len(rows) <= _MANY else 3)
    for at, row in _at(rows):
        curve = row.curve
        if curve is None:
            continue
        tested = curve.batch_sizes
        ax.plot([tested[0], tested[-1]], [at, at], color=grey("#ededed"), linewidth=stroke(6.5),
                solid_capstyle="butt", zorder=1)  # fmt: skip
        if row.found is None:
            continue
        span = tested[0], tested[-1]
        for name, up, caret in _ENDS:
            _interval(ax, _quantity(row.found, name), at + up, span, colour=tint(ink(), 0.5),
                      line=0.7, marker=caret, size=3.4)  # fmt: skip
        critical = _quantity(row.found, "critical_batch_size")
        _interval(ax, critical, at, span, colour=seen(_COLOUR), line=1.6, marker="o", size=4)
    ax.set_xlabel(f"batch size ({units(row.curve.example_unit for row in rows if row.curve)})")
    _told(ax, [(at, _numbers(row)) for at, row in _at(rows) if row.curve])


def _ratios(ax: Axes, rows: Sequence[_Row], baseline: str) -> None:
    found = [(at, row, row.against.ratios["critical_batch_size"])
             for at, row in _at(rows) if row.against]  # fmt: skip
    ends = [x for _, _, one in found for x in (one.value, one.low, one.high) if x is not None]
    low, high = min([1.0, *ends]) / 1.25, max([1.0, *ends]) * 1.25
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    log10_axis(ax.xaxis, low, high, most=5)
    ax.axvline(1, color=faint(), linewidth=stroke(0.8), linestyle=(0, (4, 2)), zorder=1)
    for at, _, one in found:
        _interval(ax, one, at, (low, high), colour=seen(_COLOUR), line=1.6, marker="o", size=4)
    ax.set_xlabel(f"critical batch size over {baseline}'s")
    told = [(at, ratio_text(one) if one.low or one.high else "unknown") for at, _, one in found]
    bases = [at for at, row in _at(rows) if row.base]
    ax.plot([1] * len(bases), bases, linestyle="none", marker="o", markersize=mark(4),
            color=seen(_COLOUR), markerfacecolor=ground(), zorder=5)  # fmt: skip
    told += [(at, "baseline") for at in bases]
    _told(ax, told)


def _at(rows: Sequence[_Row]) -> list[tuple[float, _Row]]:
    """Each row's height over the last one; a name of two lines takes more room."""
    down, found = 0.0, []
    for i, row in enumerate(rows):
        more = 0.25 * row.text.count("\n")
        down += (1 if i else 0) + row.top + more
        found.append((down, row))
        down += more
    return [(found[-1][0] - at, row) for at, row in found]


def _interval(
    ax: Axes,
    one: Interval,
    at: float,
    span: tuple[float, float],
    *,
    colour: Any,
    line: float,
    marker: Any,
    size: float,
) -> None:
    """A line from end to end, an arrow where it is open, its value marked."""
    if one.low is None and one.high is None:
        return
    low = span[0] if one.low is None else one.low
    high = span[1] if one.high is None else one.high
    ax.plot([low, high], [at, at], color=colour, linewidth=stroke(line), zorder=3,
            solid_capstyle="butt")  # fmt: skip
    for x, arrow, is_open in ((low, "<", one.low is None), (high, ">", one.high is None)):
        if is_open:
            ax.plot([x], [at], marker=arrow, markersize=mark(1.5 + 1.2 * line), color=colour,
                    markeredgewidth=0, zorder=4, clip_on=False)  # fmt: skip
    if one.value is not None:
        ax.plot([one.value], [at], marker=marker, markersize=mark(size), color=colour,
                markeredgecolor=ground(), markeredgewidth=stroke(0.4), zorder=5)  # fmt: skip


def _told(ax: Axes, told: Sequence[tuple[float, str]]) -> None:
    """Words to the right of the axes, one a row."""
    for at, text in told:
        ax.annotate(
            text, (1, at), xycoords=ax.get_yaxis_transform(), xytext=(5 * unit(), 0),
            textcoords="offset points", va="center", ha="left", fontsize="small",
            annotation_clip=False,
        )  # fmt: skip


def _numbers(row: _Row) -> str:
    if row.found is None:
        return "too few batch sizes"
    one = _quantity(row.found, "critical_batch_size")
    if one.low is None and one.high is None:
        return "unknown"
    value, low, high = (None if x is None else _whole(x) for x in (one.value, one.low, one.high))
    if low is not None and high is not None:
        return " ".join(filter(None, (value, f"[{low}, {high}]")))
    return f"≥ {low}" if low is not None else f"≤ {high}"


def _whole(number: float) -> str:
    """Two significant digits, three from 100 on: 31, 2,080, 111k."""
    if number < 100:
        return f"{float(f'{number:.2g}'):g}"
    return f"{float(f'{number:.3g}'):,.0f}" if number < 10_000 else f"{number / 1000:.3g}k"


def _names(ax: Axes, rows: Sequence[_Row]) -> None:
    ax.set_ylim(-0.7, _at(rows)[0][0] + 0.6)
    ticks = [(at, row) for at, row in _at(rows) if row.curve is not None]
    ax.set_yticks([at for at, _ in ticks], [row.text for _, row in ticks])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    for at, row in _at(rows):
        if row.curve is None:
            ax.annotate(
                row.text, (0, at - 0.08), xycoords=ax.get_yaxis_transform(), fontsize="small",
                va="center", ha="left", color=ink(), fontweight="bold", annotation_clip=False,
            )  # fmt: skip


def _fitted(rows: Sequence[_Row], need: float) -> list[_Row]:
    """``rows`` with their names and headings as the figure has room for them."""
    here = width(need)
    curves = [row.text for row in rows if row.curve is not None]
    texts = dict(zip(curves, apart(curves, within(_NAMES * here), lines=2), strict=True))
    over = within((1 - _NAMES) * here, "small")
    return [
        replace(row, text=fitted(row.text, over) if row.curve is None else texts[row.text])
        for row in rows
    ]


def _wrapped(row: _Row, wide: bool) -> str:
    """A long name on two lines; where there is little room, without the target of a curve that
    is alone (it is in the numbers)."""
    text = row.text
    if row.curve is None:
        return text
    if not wide:
        text = text.partition(" · ")[0]
    if len(text) <= _LONG[not wide]:
        return text
    breaks = [i + len(s) for s in (" · ", ", ") for i in range(len(text)) if text.startswith(s, i)]
    if not breaks:
        return text
    at = min(breaks, key=lambda i: abs(i - len(text) / 2))
    return text[:at].rstrip(" ·,") + "\n" + text[at:]


def _open(rows: Sequence[_Row]) -> bool:
    """Whether an interval has an arrow in the place of an end."""
    drawn = [_quantity(row.found, name) for row in rows for name in _DRAWN]
    return any((one.low is None) != (one.high is None) for one in drawn)


def _legend(
    axes: Sequence[Axes], rows: Sequence[_Row], *, compared: bool, both: bool, alone: bool
) -> None:
    if compared and not both:
        return
    pale: dict[str, Any] = {"color": tint(ink(), 0.5), "linewidth": stroke(0.7),
                            "markersize": mark(3.4)}  # fmt: skip
    level = next(row.found.level for row in rows if row.found)
    handles: list[Artist] = [
        Line2D([], [], color=seen(_COLOUR), linewidth=stroke(1.6), marker="o", markersize=mark(4),
               markeredgecolor=ground(), markeredgewidth=stroke(0.4),
               label=f"critical batch size, {100 * level:g} %"),
        Line2D([], [], color=grey("#ededed"), linewidth=stroke(6.5), label="tested",
               solid_capstyle="butt"),
        Line2D([], [], marker=4, label="perfect scaling until", **pale),
        Line2D([], [], marker=5, label="maximal from", **pale),
    ]  # fmt: skip
    if _open(rows):
        handles.append(Line2D([], [], linestyle="none", marker=">", markeredgewidth=0,
                              markersize=mark(3), color=tint(ink(), 0.5),
                              label="open end of an interval"))  # fmt: skip
    figure = axes[0].get_figure(root=True)
    assert figure is not None
    if alone:
        axes[0].legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, columnspacing=1.2
        )
        return
    wide = figure.get_size_inches()[0] / unit() > _WIDE
    figure.legend(
        handles=handles, loc="outside upper center", ncols=4 if wide else 2, columnspacing=1.2
    )
