"""Which combinations of the training algorithm's factors are studied."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from experiments.techniques import SETTINGS

Design = Literal["product", "one_factor"]
"""``product``: every combination. ``one_factor``: the first value of each factor, the baseline, and
each other value with the first ones of all other factors."""


def combined(design: Design, factors: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """The combinations of the values of ``factors``, in the order of their product.

    A value that is a mapping, as a technique's with its settings, is compared key by key: each
    setting is a factor, and so are all techniques together.
    """
    first = [values[0] for values in factors]
    for combination in itertools.product(*factors):
        changes = sum(map(_changes, combination, first))
        if design == "product" or changes <= 1:
            yield combination


def combinations(design: Design, sizes: Sequence[int]) -> int:
    """How many combinations factors with so many values have."""
    total = 1
    for size in sizes:
        total = total * size if design == "product" else total + size - 1
    return total


def _changes(value: Any, first: Any) -> int:
    if not (isinstance(value, Mapping) and isinstance(first, Mapping)):
        return int(value is not first)
    settings = sum(value.get(name) != first.get(name) for name in SETTINGS)
    others = ({n: v for n, v in each.items() if n not in SETTINGS} for each in (value, first))
    return settings + (next(others) != next(others))
