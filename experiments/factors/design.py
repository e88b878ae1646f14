"""Which combinations of the training algorithm's factors are studied."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from experiments.errors import ExperimentError, nearest
from experiments.techniques import SETTINGS

_PRODUCT, _ALONE = "product", "one_factor"
_OPTIONS = _BASELINE, _SHARED = "baseline", "shared_points"
_MOST_SEARCHES = 100


@dataclass(frozen=True, kw_only=True)
class Design:
    """A design as an experiment file writes it."""

    alone: bool = False
    """Whether the first value of each factor, the baseline, is studied, and each other value with
    the first ones of all other factors; else every combination."""
    baseline: int = 1
    """How many searches the baseline gets, each of points and seeds of its own."""
    shared_points: bool = False
    """Whether the others train the points of the baseline's first search, where they tune the same
    ranges."""

    @classmethod
    def parse(cls, written: Any) -> Self:
        """``product``, ``one_factor``, or ``{one_factor: {baseline: 3}}``.

        Raises:
            ExperimentError: it is none of these.
        """
        if written in (_PRODUCT, _ALONE):
            return cls(alone=written == _ALONE)
        example = "design: {one_factor: {baseline: 3}}"
        if not (isinstance(written, Mapping) and [*written] == [_ALONE]):
            message = f"design {written!r} is not one of {_PRODUCT!r}, {_ALONE!r}"
            raise ExperimentError(message, hint=f"or with its baseline's searches, {example}")
        options = written[_ALONE]
        if not isinstance(options, Mapping):
            raise ExperimentError(f"one_factor cannot be {options!r}", hint=example)
        for name in options:
            if name not in _OPTIONS:
                hint = nearest(str(name), _OPTIONS)
                raise ExperimentError(f"one_factor has no key {name!r}", hint=hint)
        searches = options.get(_BASELINE, 1)
        if isinstance(searches, float) and searches.is_integer():
            searches = int(searches)
        if not (type(searches) is int and 1 <= searches <= _MOST_SEARCHES):
            raise ExperimentError(
                f"baseline cannot be {searches!r}",
                hint=f"how often the baseline is searched, 1 to {_MOST_SEARCHES}: {example}",
            )
        shared = options.get(_SHARED, False)
        if not isinstance(shared, bool):
            hint = f"design: {{one_factor: {{{_SHARED}: true}}}}"
            raise ExperimentError(f"{_SHARED} cannot be {shared!r}", hint=hint)
        return cls(alone=True, baseline=searches, shared_points=shared)


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
