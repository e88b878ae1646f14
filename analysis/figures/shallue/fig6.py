"""Shallue et al. 2019, figure 6: subsets of one data set compared."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.figure_data import FigureData
from analysis.figures.paper.compared import Compared, Varying, data_fields, fields_of
from analysis.figures.paper.panel_figure import figure


def _varying(data: FigureData, named: Sequence[str]) -> Sequence[Varying]:
    """The fields that --by names, else those that choose examples."""
    by = [name for name in named if name in fields_of(data.curves)]
    return [Varying.field(name, none="whole data set") for name in by or data_fields(data)]


draw, numbers = figure(
    Compared(
        varying=_varying,
        needs="no subsets of one data set to compare",
        hint="this figure needs curves that differ in a field that chooses examples: "
        "name it by --by",
        normalized=True,
    )
)
