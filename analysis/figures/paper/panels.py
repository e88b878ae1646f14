"""The content of a figure of the paper: panels of lines of dots over batch sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.curves.edges import Edge


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
    decimal: bool = False
    """Whether they are learning rates or their like, drawn over decimal numbers."""
    shared_perfect: bool = False
    """One line of perfect scaling for all: values are over those at one batch size."""
    rules: tuple[Rule, ...] = ()
    row: int = 0
    """The row of panels that it belongs to, where rows have a meaning."""

    @property
    def measured(self) -> list[Line]:
        """The lines that are the subject of the figure, without published ones."""
        return [line for line in self.lines if line.source is None]


@dataclass(frozen=True, kw_only=True)
class PanelFigure:
    """The panels of a figure, what is said at its foot, and the rows of what is left out, whose
    ``note`` says why."""

    panels: Sequence[Panel]
    footnote: str = ""
    left_out: Sequence[Mapping[str, Any]] = ()


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


def tabulate(content: PanelFigure) -> pd.DataFrame:
    """A row a dot, and the rows of what is left out."""
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
        for panel in content.panels
        for line in panel.lines
        for dot in line.dots
    ]
    frame = pd.DataFrame([*rows, *content.left_out])
    first = [name for name in COLUMNS if name in frame]
    return frame[[*first, *(name for name in frame if name not in first)]]
