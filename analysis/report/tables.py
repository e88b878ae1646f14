"""The tables of the page: texts as people read them, and the numbers that they sort by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.curves.points import Point
from analysis.fit.comparisons import Comparison, ratio_text
from analysis.fit.crossovers import Crossover
from analysis.fit.interval import COLUMNS, Interval
from analysis.fit.regimes import Regimes, slope_text
from analysis.formatting import interval, short, units
from analysis.report.panels import View
from analysis.report.series import compact, metaparameters

Cell = tuple[str, float | str | None]
"""A text, and what it sorts by (None: last)."""


def regimes(view: View) -> dict[str, Any]:
    """A row a curve, an interval a cell."""
    rows: list[list[Cell]] = []
    for curve, fit in view.pairs:
        label, sizes = curve.label, curve.batch_sizes
        many = f"{min(sizes):,}–{max(sizes):,} ({len(sizes)})"
        cells: list[Cell] = [(label, label), (many, len(sizes)), _whole(curve.trials)]
        cells += _penalty(fit)
        cells += [_interval(getattr(fit, name)) if fit else ("", None) for name in COLUMNS]
        cells += _slopes(fit)
        rows.append(cells)
    names = ["curve", "batch sizes", "N", "best batch size", "small-batch penalty", *_named(view),
             "first slope", "last slope", "slope -1/2 at"]  # fmt: skip
    return _table("Regimes", names, rows, texts=("curve",))


def points(view: View) -> dict[str, Any]:
    """A row a batch size: the steps, their bracket and error bar, and the trial behind them."""
    rows: list[list[Cell]] = []
    for curve in view.curves:
        rows += [[(curve.label, curve.label), *_point(point)] for point in curve.points]
    names = ["curve", "batch size", "steps", "last miss", "error bar", _examples(view), "N", "hits",
             "infeasible", "best metaparameters", "trial", "on the edge"]  # fmt: skip
    return _table(
        "Points", names, rows, texts=("curve", "best metaparameters", "trial", "on the edge")
    )


def ratios(view: View, comparisons: Sequence[Comparison | None]) -> dict[str, Any]:
    """A row a curve that is compared with a baseline: the ratio of each quantity."""
    rows: list[list[Cell]] = []
    for item in comparisons:
        if item is not None and item.baseline is not None:
            cells: list[Cell] = [(item.label, item.label), (item.baseline, item.baseline)]
            rows.append([*cells, *(_ratio(item.ratios[name]) for name in COLUMNS)])
    names = ["curve", "over", *_named(view)]
    return _table("Ratios", names, rows, texts=("curve", "over"))


def crossovers(pairs: Sequence[Crossover]) -> dict[str, Any]:
    """A row a pair of curves and crossover: where, and which takes fewer steps on each side."""
    rows: list[list[Cell]] = [
        [
            (f"{pair.first}, {pair.second}", pair.first),
            _interval(at),
            (str(below), str(below)),
            (str(above), str(above)),
        ]
        for pair in pairs
        for at, below, above in zip(pair.at, pair.better, pair.better[1:], strict=False)
    ]
    names = ["curves", "cross at batch size", "fewer steps below", "fewer steps above"]
    texts = ("curves", "fewer steps below", "fewer steps above")
    return _table("Crossovers", names, rows, texts=texts)


def _examples(view: View) -> str:
    return units(curve.example_unit for curve in view.curves)


def _named(view: View) -> list[str]:
    """The names of the quantities as columns."""
    return [name.replace("_", " ").replace("examples", _examples(view)) for name in COLUMNS]


def _table(
    caption: str, names: Sequence[str], rows: list[list[Cell]], *, texts: Sequence[str]
) -> dict[str, Any]:
    """Columns where no row has anything are left out."""
    full = [i for i in range(len(names)) if any(row[i][0] for row in rows)]
    return {
        "caption": caption,
        "columns": [{"name": names[i], "text": names[i] in texts} for i in full],
        "rows": [[[row[i][0], compact(row[i][1])] for i in full] for row in rows],
    }


def _whole(number: float | None) -> Cell:
    return ("", None) if number is None else (f"{number:,.0f}", number)


def _number(number: float | None) -> Cell:
    """Steps: whole ones in full, others as short as they are known."""
    if number is None:
        return "", None
    return (f"{number:,.0f}" if float(number).is_integer() else short(number)), number


def _interval(quantity: Interval) -> Cell:
    return interval(*quantity.ends), quantity.nearest


def _slopes(fit: Regimes | None) -> list[Cell]:
    if fit is None:
        return [("", None)] * 3
    first, last = (fit.slopes[name] for name in ("first", "last"))
    ends = [(slope_text(each), each.value) for each in (first, last)]
    return [*ends, _interval(fit.slopes["half"])]


def _penalty(fit: Regimes | None) -> list[Cell]:
    """The batch size of fewest examples, and how many times as many the smallest one needs."""
    if fit is None or fit.best_batch_size is None or fit.small_batch_penalty is None:
        return [("", None), ("", None)]
    factor = fit.small_batch_penalty
    return [_interval(fit.best_batch_size), (f"{factor:.2f}×", factor)]


def _ratio(ratio: Interval) -> Cell:
    return ratio_text(ratio), ratio.nearest


def _point(point: Point) -> list[Cell]:
    bar = point.bar
    ends = ""
    if bar is not None and bar[1] != bar[0]:
        ends = f"[{short(bar[0])}, {short(bar[1]) if bar[1] != float('inf') else '∞'}]"
    steps: Cell = ("not reached", None) if point.steps is None else _number(point.steps)
    share = point.infeasible / point.ran if point.ran else None
    return [
        _whole(point.batch_size),
        steps,
        _number(point.last_miss),
        (ends, bar[0] if bar else None),
        _number(point.examples),
        _whole(point.trials),
        _whole(point.hits),
        ("" if share is None or point.runs else f"{share:.0%}", share),
        (metaparameters(point), None),
        (point.trial or "", None),
        ("; ".join(edge.text for edge in point.edges), None),
    ]
