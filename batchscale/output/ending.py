"""The end of a sweep on the terminal: its finding in a sentence, and its curves in characters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.figure_data import FigureData, Query
from analysis.fit.comparisons import Comparison, compare
from analysis.fit.regimes import Regimes
from analysis.formatting import interval, units
from results.errors import ResultsError

if TYPE_CHECKING:
    from analysis.curves.curve import Curve
    from results.reader import Results

_ROWS, _WIDTH = 10, 56
_MARKS = "ox+*#@"
"""One for each curve of a plot; results with more curves are not drawn."""
_SEVERAL = "&"


def ending(results: Results) -> str:
    """A plot and a sentence about the curves of a sweep; empty where it has none to speak of."""
    data = FigureData(Query(sources=[results]))
    try:
        pairs = data.pairs
    except ResultsError:
        return ""
    drawn = plot([curve for curve, _ in pairs]) if len(pairs) <= len(_MARKS) else ""
    return "\n".join(filter(None, (drawn, finding(pairs))))


def finding(pairs: Sequence[tuple[Curve, Regimes | None]]) -> str:
    """The clearest difference between the curves, or the regimes of the only one; empty where none
    could be fitted."""
    fitted = [(curve, fit) for curve, fit in pairs if fit is not None]
    if not fitted:
        return ""
    if len(fitted) == 1:
        return _regimes(*fitted[0])
    labels = [curve.label for curve, _ in fitted]
    plain = [curve.label for curve, _ in fitted if curve.group.get("optimizer") == "sgd"]
    curves, fits = zip(*fitted, strict=True)
    compared = [
        each
        for each in compare(curves, fits, (plain or labels)[0])
        if each is not None and each.baseline is not None
    ]
    if not compared:
        return ""
    sentence = max(compared, key=_clarity).sentence
    return f"{sentence[0].upper()}{sentence[1:]}."


def _clarity(comparison: Comparison) -> float:
    """By how many widths of its interval the ratio of critical batch sizes is from 1."""
    value, low, high = comparison.ratios["critical_batch_size"].ends
    if low is None or high is None:
        nearest = max(math.log(low or 1.0), -math.log(high or 1.0))
        return min(nearest, 1.0) if nearest > 0 else -1.0
    return abs(math.log(value or math.sqrt(low * high))) / math.log(high / low)


def _regimes(curve: Curve, fit: Regimes) -> str:
    unit = units([curve.example_unit])
    names = ("perfect_scaling_until", "critical_batch_size", "maximal_parallelism_from")
    until, critical, beyond = (interval(*getattr(fit, name).ends) for name in names)
    end, start = f"perfect scaling until {until} {unit}", f"maximal parallelism from {beyond}"
    if until == "open":
        end = "end of perfect scaling open"
    if beyond == "open":
        start = "start of maximal parallelism open"
    return f"{curve.label}: {end}, critical batch size {critical}, {start}."


def plot(curves: Sequence[Curve]) -> str:
    """Steps to target against batch size, both logarithmic, a mark a curve; empty without a
    point."""
    points = [
        (math.log2(point.batch_size), math.log10(point.steps), mark)
        for curve, mark in zip(curves, _MARKS, strict=False)
        for point in curve.points
        if point.steps
    ]
    sizes = sorted({x for x, _, _ in points})
    if len(sizes) < 2:
        return ""
    bottom, top = min(y for _, y, _ in points), max(y for _, y, _ in points)
    left, right = sizes[0], sizes[-1]
    lines = [[" "] * (_WIDTH + 1) for _ in range(_ROWS + 1)]
    for x, y, mark in points:
        row = lines[round((top - y) / ((top - bottom) or 1.0) * _ROWS)]
        column = round((x - left) / (right - left) * _WIDTH)
        row[column] = mark if row[column] in (" ", mark) else _SEVERAL
    ends = {0: f"{10**top:,.0f}", _ROWS: f"{10**bottom:,.0f}"}
    margin = max(len(text) for text in ends.values())
    ticks = [f"{2**left:,.0f}", f"{2**right:,.0f}"]
    legend = ", ".join(f"{m} {c.label}" for c, m in zip(curves, _MARKS, strict=False))
    if any(_SEVERAL in cells for cells in lines):
        legend += f", {_SEVERAL} several"
    return "\n".join(
        [
            f"steps to target against batch size (logarithmic): {legend}",
            *(f"{ends.get(i, ''):>{margin}} │{''.join(cells)}" for i, cells in enumerate(lines)),
            f"{'':>{margin}} └{'─' * (_WIDTH + 1)}",
            f"{'':>{margin}}  {ticks[0]}{ticks[1]:>{_WIDTH + 1 - len(ticks[0])}}",
        ]
    )
