"""Shallue et al. 2019, figure 6: subsets of one data set compared."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.figure_data import FigureData
from analysis.figures.paper.compared import Compared, Varying, fields_of
from analysis.figures.paper.subsets import of_data


def _varying(shown: FigureData, named: Sequence[str]) -> Sequence[Varying]:
    """The fields that --by names, else those that choose examples."""
    by = [name for name in named if name in fields_of(shown.curves)]
    fields = by or of_data(shown)
    return [
        Varying(
            columns=frozenset({name}),
            name=name.rpartition(".")[2],
            goals=True,
            none="whole data set",
        )
        for name in fields
    ]


FIGURE = Compared(
    varying=_varying,
    needs="no subsets of one data set to compare",
    hint="this figure needs curves that differ in a field that chooses examples: name it by --by",
    over_one=True,
    published=False,
)
draw, numbers = FIGURE.draw, FIGURE.numbers
