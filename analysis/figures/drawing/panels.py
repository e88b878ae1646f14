"""The content of a panel: curves of one workload and target, or values as lines over batch
sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves.curve import Curve
from analysis.curves.edges import Edge
from analysis.curves.groups import labels
from analysis.figures.drawing.text_fit import Fits, fitted
from analysis.fit.regimes import Regimes
from analysis.formatting import units

Pair = tuple[Curve, Regimes | None]
Pairs = list[Pair]

MANY = 6
"""Number of panels above which each is smaller, so that more fit in a row."""
_SOURCE_LETTERS = 14
"""Letters that a source's name may take in a legend."""
_ESTIMATORS = {
    "run": "every run a point",
    "minimum": "best of {}",
    "best_of_10": "best of 10 of {}",
    "median_of_searches": "median best of {}",
    "iso_loss": "at equal loss, best of {}",
}


def facets(pairs: Pairs) -> list[Pairs]:
    """The curves of each workload, data set and target, with their regimes."""
    panels: dict[tuple[str, ...], Pairs] = {}
    for curve, fit in pairs:
        key = (*(str(curve.group.get(n)) for n in ("workload", "dataset")), str(curve.target))
        panels.setdefault(key, []).append((curve, fit))
    return list(panels.values())


def curve_names(pairs: Pairs) -> list[str]:
    """Names that distinguish the curves of a panel, for its legend."""
    groups = [dict(curve.group) for curve, _ in pairs]
    sources = {str(group["source"]) for group in groups if group.get("source")}
    short = {name: _shortened(name) for name in sources}
    if len(set(short.values())) == len(short):
        for group in groups:
            if group.get("source"):
                group["source"] = short[str(group["source"])]
    return labels(groups)


def _shortened(source: str) -> str:
    """The first parts of a long name: ``shallue_2019_digitized`` is ``shallue_2019``."""
    parts = source.split("_")
    while len(parts) > 1 and len("_".join(parts)) > _SOURCE_LETTERS:
        parts.pop()
    return "_".join(parts)


def examples_name(pairs: Pairs) -> str:
    """What the curves' examples are called, in the plural."""
    return units(curve.example_unit for curve, _ in pairs)


def axis_to_target(quantity: str, pairs: Pairs) -> str:
    """The name of an axis of steps or of examples (by their unit) to target."""
    relative = any(curve.relative for curve, _ in pairs)
    return f"{quantity} to target" + (", relative" if relative else "")


def caption(pairs: Pairs, fits: Fits = lambda _: True) -> str:
    """Workload, target and estimator: on one line where it ``fits``, else on one or two each."""
    curves = [curve for curve, _ in pairs]
    parts = [str(curves[0].group["workload"])] if curves[0].group.get("workload") else []
    if curves[0].target is not None:
        parts.append(str(curves[0].target))
    trials = sorted({curve.trials for curve in curves})
    count = f"{trials[0]}" if len(trials) == 1 else f"{trials[0]}–{trials[-1]}"
    estimator = "run" if any(curve.repeats for curve in curves) else curves[0].estimator
    parts.append(_ESTIMATORS[estimator].format(count))
    whole, rest = " · ".join(parts), " · ".join(parts[1:])
    if fits(whole) or len(parts) < 2:
        return whole if fits(whole) else fitted(whole, fits, lines=2)
    lines = [parts[0], rest] if fits(rest) else parts
    return "\n".join(fitted(line, fits, lines=2) for line in lines)


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A point of a line."""

    batch_size: int
    value: float | None
    """None if it is not known, or not reached."""
    bar: tuple[float, float] | None = None
    """Its error bar; the upper end may be infinite."""
    why_open: str | None = None
    """Why the upper end is infinite."""
    reached: bool = True
    """False: the target is known not to be reached."""
    edges: tuple[Edge, ...] = ()
    """Edges of its search space on which the optimum lies: the point is ringed."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of the CSV."""

    def over(self, unit: float) -> Dot:
        """In multiples of ``unit``."""
        value = None if self.value is None else self.value / unit
        bar = None if self.bar is None else (self.bar[0] / unit, self.bar[1] / unit)
        return replace(self, value=value, bar=bar)


@dataclass(frozen=True, kw_only=True)
class Line:
    """Dots by ascending batch size. A dot without a value interrupts the line."""

    label: str
    dots: tuple[Dot, ...]
    perfect: float | None = None
    """Value times batch size under perfect scaling."""
    source: str | None = None
    """Its publication; None if it is the subject of the figure, not a comparison."""
    beside: str | None = None
    """The label of the line that a published one is compared with: it has its marker."""
    row: Mapping[str, Any] = field(default_factory=dict)

    def values(self) -> dict[int, float]:
        """The known values by batch size."""
        return {dot.batch_size: dot.value for dot in self.dots if dot.value is not None}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A power of the batch size, as a dashed line over all of them."""

    name: str
    level: float
    """Its value at batch size 1."""
    power: float
    dashes: Any


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Lines on one pair of axes."""

    title: str
    """The title; may be empty."""
    lines: tuple[Line, ...]
    measure: str
    """The name of the vertical axis."""
    note: str = ""
    """A second line of the title: the target."""
    unit: str = "examples"
    """The unit of batch sizes."""
    counted: bool = True
    """Whether values are counts or ratios, drawn over powers of two, or else values of a metric."""
    shared_perfect: bool = False
    """One line of perfect scaling for all: values are over those at one batch size."""
    rules: tuple[Rule, ...] = ()
    row: int = 0
    """The row of panels that it belongs to, where rows have a meaning."""

    @property
    def measured(self) -> list[Line]:
        """The lines that are the subject of the figure, without published ones."""
        return [line for line in self.lines if line.source is None]


def normalized(panel: Panel) -> Panel | None:
    """All lines over their value at the smallest batch size at which each has one; None where
    there is none."""
    shared = set.intersection(*(set(line.values()) for line in panel.lines))
    if not shared:
        return None
    size = min(shared)
    lines = []
    for line in panel.lines:
        unit = line.values()[size]
        dots = tuple(
            replace(dot.over(unit), row={**dot.row, "normalized_at": size}) for dot in line.dots
        )
        lines.append(replace(line, dots=dots, perfect=float(size)))
    measure = f"{panel.measure} / those at B = {size:,}" if size >= 1 else panel.measure
    return replace(panel, lines=tuple(lines), measure=measure, shared_perfect=True)


COLUMNS = ("panel", "line", "source", "batch_size", "value", "low", "high", "perfect_scaling")


def tabulate(panels: Sequence[Panel], more: Iterable[Mapping[str, Any]] = ()) -> pd.DataFrame:
    """A row a dot, and ``more`` rows of what is not drawn, whose ``note`` says why."""
    rows = [
        {
            "panel": panel.title,
            "line": line.label,
            "source": line.source,
            "batch_size": dot.batch_size,
            "value": dot.value,
            "low": None if dot.bar is None else dot.bar[0],
            "high": None if dot.bar is None or not np.isfinite(dot.bar[1]) else dot.bar[1],
            "perfect_scaling": None if line.perfect is None else line.perfect / dot.batch_size,
            "measure": panel.measure,
            **line.row,
            **dot.row,
        }
        for panel in panels
        for line in panel.lines
        for dot in line.dots
    ]
    frame = pd.DataFrame([*rows, *more])
    first = [name for name in COLUMNS if name in frame]
    return frame[[*first, *(name for name in frame if name not in first)]]
