"""Shallue et al. 2019, figure 3: models of one data set compared, families, widths and depths."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.figure_data import FigureData
from analysis.figures.paper.compared import Compared, Varying, fields_of
from analysis.figures.paper.subsets import is_smoothing, of_data


def varying(shown: FigureData, named: Sequence[str]) -> Sequence[Varying]:
    """Models by name, whatever their fields are; then each field of a model."""
    fields = [name for name in fields_of(shown.curves) if not is_smoothing(name)]
    data = set(of_data(shown))
    by = [name for name in named if name in fields]
    if by:
        return [Varying(columns=frozenset({name}), name=name, goals=True) for name in by]
    model = [name for name in fields if name not in data]
    columns = frozenset({"workload", "model", *model})
    return [
        *(
            Varying(columns=frozenset({name}), name=name.rpartition(".")[2], goals=True)
            for name in model
        ),
        Varying(columns=columns, name="model", goals=True, must=("workload", "model")),
    ]


FIGURE = Compared(
    varying=varying,
    needs="no two models of one data set to compare",
    hint="this figure needs curves that differ in the model, or in a field of it such as width",
    over_one=True,
    published=False,
)
draw, numbers = FIGURE.draw, FIGURE.numbers
