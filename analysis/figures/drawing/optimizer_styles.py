"""The colour, mark and line of each optimizer: in every figure, in the report and on the live page.

A number stands for all three. This file imports nothing that draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any


@dataclass(frozen=True)
class CurveStyle:
    """A curve's colour, marker and line; each identifies the curve by itself.

    ``dark`` is the colour on a dark screen, ``marker`` and ``line`` are matplotlib's, ``symbol``
    and ``dash`` plotly's names of them.
    """

    colour: str
    marker: str
    line: Any
    dark: str = ""
    symbol: str = ""
    dash: str = ""


STYLES = (
    CurveStyle("#016297", "o", "-", "#4ba6de", "circle", "solid"),
    CurveStyle("#d55e00", "s", (0, (5, 1.2, 1.2, 1.2)), "#f08a3c", "square", "dashdot"),
    CurveStyle("#029e73", "^", (0, (1.2, 1.0)), "#35c79d", "triangle-up", "dot"),
    CurveStyle("#d48cc6", "D", (0, (7, 1.5)), "#e3a2d6", "diamond", "longdash"),
    CurveStyle("#de8f05", "v", (0, (4, 1, 1, 1, 1, 1)), "#f2b84b", "triangle-down", "longdashdot"),
    CurveStyle("#56b4e9", "P", (0, (2.5, 1)), "#a6d9f7", "cross", "dash"),
    CurveStyle("#000000", "X", (0, (9, 1.5, 1.2, 1.5)), "#f2f2f2", "x", "8px,3px,2px,3px"),
)
"""Seaborn's colour-blind palette, its blue darker and its purple lighter: so readers who see no
red, no green or no blue distinguish the first four too."""
OPTIMIZERS = {
    name: number
    for number, name in enumerate(
        (
            *("sgd", "momentum", "adam", "nesterov", "adamw", "muon", "lion"),
            *("schedule-free-sgd", "lars", "nadam", "signum", "rmsprop", "schedule-free-adamw"),
            *("shampoo", "lamb", "adagrad", "soap"),
        )
    )
}
"""Each packaged optimizer's number: the seven colours, then the same with other marks."""


def style_numbers(names: Iterable[str]) -> dict[str, int]:
    """The number of each curve's name in a figure: that of the optimizer that it names.

    Of several curves of one optimizer the first with the fewest additions to its name keeps its
    style. Each of the others, and of those of optimizers that are not in the table, gets the first
    number that is free.
    """
    order = list(dict.fromkeys(names))
    numbers: dict[str, int] = {}
    for name in sorted(order, key=lambda text: text.count(", ")):
        optimizer = next((part for part in name.split(", ") if part in OPTIMIZERS), None)
        if optimizer is not None and OPTIMIZERS[optimizer] not in numbers.values():
            numbers[name] = OPTIMIZERS[optimizer]
    taken = {*numbers.values()}
    free = (number for number in count() if number not in taken)
    return {name: numbers[name] if name in numbers else next(free) for name in order}
