"""A metaparameter of the best trial against batch size, a panel a workload (Shallue et al. 2019,
appendix)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from analysis.curves.curve import Curve
from analysis.curves.points import Point
from analysis.figure_data import FigureData
from analysis.figures.paper import sheet
from analysis.figures.paper.compared import ALGORITHM, Varying, grouped, line_labels, titles
from analysis.figures.paper.panel import Dot, Line, Panel, tabulate
from analysis.formatting import units
from results.errors import ResultsError


@dataclass(frozen=True, kw_only=True)
class OfBest:
    """A figure of one metaparameter, a line a training algorithm."""

    dimension: str
    measure: str
    value: Callable[[float], float | None]
    """What is drawn of it; None where it has no place on a logarithmic axis."""

    def draw(self, shown: FigureData, *, ax: Axes | None = None) -> Axes:
        """The value of the trial at the minimum; ringed where it sits on the edge of its space."""
        return sheet.draw(self.panels(shown), ax)

    def numbers(self, shown: FigureData) -> pd.DataFrame:
        """A row a batch size."""
        return tabulate(self.panels(shown))

    def panels(self, shown: FigureData) -> list[Panel]:
        """What is drawn.

        Raises:
            ResultsError: no best trial has the metaparameter.
        """
        pairs = [
            (curve, None)
            for curve in shown.curves
            if any(self._of(point) is not None for point in curve.points)
        ]
        if not pairs:
            raise ResultsError(
                f"no best trial has a {self.dimension.replace('_', ' ')} to draw",
                hint="this figure needs trials of a search with that metaparameter",
            )
        parts = grouped(pairs, Varying(columns=ALGORITHM), 1)
        texts = titles([("", key) for key, _ in parts])
        return [
            self._panel(text, [curve for curve, _ in some])
            for text, (_, some) in zip(texts, parts, strict=True)
        ]

    def _panel(self, title: str, curves: list[Curve]) -> Panel:
        words = line_labels(curves, ALGORITHM)
        targets = {str(curve.target) for curve in curves if curve.target is not None}
        return Panel(
            title=title,
            lines=tuple(
                Line(label=text, dots=tuple(map(self._dot, curve.points)))
                for curve, text in zip(curves, words, strict=True)
            ),
            measure=self.measure,
            note=targets.pop() if len(targets) == 1 else "",
            unit=units(curve.example_unit for curve in curves),
        )

    def _dot(self, point: Point) -> Dot:
        held = self._of(point)
        return Dot(
            batch_size=point.batch_size,
            value=None if held is None else self.value(held),
            edges=tuple(edge for edge in point.edges if edge.dimension == self.dimension),
            row={
                self.dimension: held,
                "steps": point.steps,
                "trials": point.trials,
                "edges": "; ".join(e.text for e in point.edges if e.dimension == self.dimension),
            },
        )

    def _of(self, point: Point) -> float | None:
        if self.dimension == "learning_rate":
            return point.learning_rate
        held = point.best.get(self.dimension)
        if held is None:
            held = next((t.momentum for t in point.trial_outcomes if t.trial == point.trial), None)
        return None if held is None else float(held)
