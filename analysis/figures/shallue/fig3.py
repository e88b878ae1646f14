"""Shallue et al. 2019, figure 3: models of one data set compared, families, widths and depths."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.figure_data import FigureData
from analysis.figures.paper.compared import Compared, Varying, data_fields, fields_of, is_smoothing
from analysis.figures.paper.panel_figure import figure


def varying(data: FigureData, named: Sequence[str]) -> Sequence[Varying]:
    """Each field of a model; then models by name, whatever their fields are."""
    fields = [name for name in fields_of(data.curves) if not is_smoothing(name)]
    by = [name for name in named if name in fields]
    if by:
        return [Varying(columns=frozenset({name}), name=name, goals=True) for name in by]
    of_data = set(data_fields(data))
    of_model = [name for name in fields if name not in of_data]
    columns = frozenset({"workload", "model", *of_model})
    return [
        *map(Varying.field, of_model),
        Varying(columns=columns, name="model", goals=True, must=("workload", "model")),
    ]


draw, numbers = figure(
    Compared(
        varying=varying,
        needs="no two models of one data set to compare",
        hint="this figure needs curves that differ in the model, or in a field of it such as width",
        normalized=True,
    )
)
