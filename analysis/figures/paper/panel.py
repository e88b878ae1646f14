"""What a panel of a figure shows: lines over batch sizes, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from analysis.curves.edges import Edge
from analysis.figure_data import FigureData

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Dot:
    """A point of a line."""

    batch_size: int
    value: float | None
    """None: not known, or not reached."""
    bar: tuple[float, float] | None = None
    """Its error bar; the upper end may be infinite,"""
    why_open: str | None = None
    """and why."""
    reached: bool = True
    """False: the target was not reached, which is more than not knowing."""
    edges: tuple[Edge, ...] = ()
    """Of its search space, on which the optimum sits: ringed."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of the CSV."""

    def over(self, unit: float) -> Dot:
        """In multiples of ``unit``."""
        value = None if self.value is None else self.value / unit
        bar = None if self.bar is None else (self.bar[0] / unit, self.bar[1] / unit)
        return replace(self, value=value, bar=bar)


@dataclass(frozen=True, kw_only=True)
class Line:
    """Dots by ascending batch size. Where one has no value, none is drawn through it."""

    label: str
    dots: tuple[Dot, ...]
    perfect: float | None = None
    """Value times batch size under perfect scaling."""
    source: str | None = None
    """Who published it; None: what is shown here, not what stands beside."""
    alike: str | None = None
    """The label of the line that a published one stands beside: it has its marker."""
    row: Mapping[str, Any] = field(default_factory=dict)

    def values(self) -> dict[int, float]:
        """Those known, by batch size."""
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
    """What it is of; empty where that goes without saying."""
    lines: tuple[Line, ...]
    measure: str
    """The name of the vertical axis."""
    note: str = ""
    """A second line of the title: the target."""
    unit: str = "examples"
    """What batch sizes count."""
    counted: bool = True
    """Whether values are counts or ratios over powers of two, else a metric's."""
    one_perfect: bool = False
    """One line of perfect scaling for all: values are over those at one batch size."""
    rules: tuple[Rule, ...] = ()
    wide: int = 0
    """The row of panels that it belongs to, where rows have a meaning."""


def normalized(panel: Panel) -> Panel | None:
    """All lines over their value at the smallest batch size at which each has one; None where
    there is none such."""
    shared = set.intersection(*(set(line.values()) for line in panel.lines))
    if not shared:
        return None
    at = min(shared)
    lines = []
    for line in panel.lines:
        unit = line.values()[at]
        dots = tuple(
            replace(dot.over(unit), row={**dot.row, "normalized_at": at}) for dot in line.dots
        )
        lines.append(replace(line, dots=dots, perfect=float(at)))
    measure = f"{panel.measure} / those at B = {at:,}" if at >= 1 else panel.measure
    return replace(panel, lines=tuple(lines), measure=measure, one_perfect=True)


def once(make: Callable[[FigureData], T]) -> Callable[[FigureData], T]:
    """``make`` of each data once: a figure and its numbers are of the same."""

    @wraps(make)
    def computed(data: FigureData) -> T:
        return data.computed(make)

    return computed


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
