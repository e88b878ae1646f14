"""Which combinations of the training algorithm's factors are studied."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, StrictBool

from experiments.errors import ExperimentError, below
from experiments.techniques import SETTINGS
from experiments.typed import Count, Keys, checked

_PRODUCT, _ALONE = "product", "one_factor"
_MOST_SEARCHES = 100
_EXAMPLE = "design: {one_factor: {baseline: 3}}"
_HINTS = {
    "": _EXAMPLE,
    "baseline": f"how often the baseline is searched, 1 to {_MOST_SEARCHES}: {_EXAMPLE}",
    "shared_points": "whether the others train the points of the baseline's first search",
}


class _Options(Keys):
    baseline: Annotated[Count, Field(le=_MOST_SEARCHES)] = 1
    """How many searches the baseline gets, each of points and seeds of its own."""
    shared_points: StrictBool = False
    """Whether the others train the points of the baseline's first search, where they tune the same
    ranges."""


class Design(_Options):
    """A design as an experiment file writes it."""

    alone: bool = False
    """Whether the first value of each factor, the baseline, is studied, and each other value with
    the first ones of all other factors; else every combination."""

    @classmethod
    def parse(cls, written: Any) -> Self:
        """``product``, ``one_factor``, or ``{one_factor: {baseline: 3}}``.

        Raises:
            ExperimentError: it is none of these.
        """
        if written in (_PRODUCT, _ALONE):
            return cls(alone=written == _ALONE)
        if not (isinstance(written, Mapping) and [*written] == [_ALONE]):
            message = f"{written!r} is not one of {_PRODUCT!r}, {_ALONE!r}"
            raise ExperimentError(message, hint=f"or with its baseline's searches, {_EXAMPLE}")
        with below(_ALONE):
            return cls(alone=True, **dict(checked(_Options, written[_ALONE], _HINTS)))


def combined(
    design: Design, factors: Sequence[Sequence[Any]]
) -> Iterator[tuple[tuple[Any, ...], int]]:
    """The combinations of the values of ``factors``, in the order of their product, each with the
    number of its search: 0, and 1 … for those of the baseline that repeat it.

    A value that is a mapping, as a technique's with its settings, is compared key by key: each
    setting is a factor, and so are all techniques together.
    """
    first = [values[0] for values in factors]
    for combination in itertools.product(*factors):
        changes = sum(map(_changes, combination, first))
        if not design.alone or changes <= 1:
            for search in range(1 if changes else design.baseline):
                yield combination, search


def combinations(design: Design, sizes: Sequence[int]) -> int:
    """How many searches factors with so many values have."""
    if not design.alone:
        return math.prod(sizes)
    return design.baseline + sum(size - 1 for size in sizes)


def _changes(value: Any, first: Any) -> int:
    if not (isinstance(value, Mapping) and isinstance(first, Mapping)):
        return int(value is not first)
    settings = sum(value.get(name) != first.get(name) for name in SETTINGS)
    others = ({n: v for n, v in each.items() if n not in SETTINGS} for each in (value, first))
    return settings + (next(others) != next(others))
