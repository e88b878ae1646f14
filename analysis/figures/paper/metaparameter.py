"""A metaparameter of the best trial against batch size, a panel a workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.curves.curve import Curve
from analysis.curves.points import Point
from analysis.figure_data import FigureData
from analysis.figures.drawing.facets import Pair
from analysis.figures.paper.compared import ALGORITHM, Varying, grouped, line_labels, titles
from analysis.figures.paper.lines import panel_of
from analysis.figures.paper.panels import Dot, Line, Panel, PanelFigure
from results.errors import ResultsError


@dataclass(frozen=True, kw_only=True)
class BestMetaparameter:
    """A figure of one metaparameter of the trial at the minimum, a line a training algorithm;
    ringed where it sits on the edge of its space."""

    dimension: str
    measure: str
    value: Callable[[float], float | None]
    """The drawn value; None if it has no place on a logarithmic axis."""

    def __call__(self, data: FigureData) -> PanelFigure:
        """What is drawn.

        Raises:
            ResultsError: no best trial has it.
        """
        pairs: list[Pair] = [
            (curve, None)
            for curve in data.curves
            if any(self._best(point) is not None for point in curve.points)
        ]
        if not pairs:
            raise ResultsError(
                f"no best trial has a {self.dimension.replace('_', ' ')} to draw",
                hint="this figure needs trials of a search with that metaparameter",
            )
        groups = grouped(pairs, Varying(columns=ALGORITHM), 1)
        names = titles([key for key, _ in groups])
        panels = [
            self._panel(name, [curve for curve, _ in group])
            for name, (_, group) in zip(names, groups, strict=True)
        ]
        return PanelFigure(panels=panels)

    def _panel(self, title: str, curves: Sequence[Curve]) -> Panel:
        names = line_labels(curves, ALGORITHM)
        lines = [
            Line(label=name, dots=tuple(map(self._dot, curve.points)))
            for curve, name in zip(curves, names, strict=True)
        ]
        return panel_of(title, curves, lines, self.measure, decimal=True)

    def _dot(self, point: Point) -> Dot:
        best = self._best(point)
        edges = tuple(edge for edge in point.edges if edge.dimension == self.dimension)
        return Dot(
            batch_size=point.batch_size,
            value=None if best is None else self.value(best),
            edges=edges,
            row={
                self.dimension: best,
                "steps": point.steps,
                "trials": point.trials,
                "edges": "; ".join(edge.text for edge in edges),
            },
        )

    def _best(self, point: Point) -> float | None:
        if self.dimension == "learning_rate":
            return point.learning_rate
        best = point.best.get(self.dimension)
        if best is None:
            best = next((t.momentum for t in point.trial_outcomes if t.trial == point.trial), None)
        return None if best is None else float(best)
