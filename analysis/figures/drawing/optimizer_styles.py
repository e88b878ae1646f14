"""The colour, mark and line of each optimizer, the same in every figure and in the report.

A number stands for all three: that of `style.curve_style` in figures and of ``look`` on the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

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
