"""The batch sizes of a grid: ``8..4096`` (doubling), a list, ``full``, or mixtures of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from results.counts import count

_RANGE = re.compile(r"(-?\d{1,18})\s*\.\.\s*(-?\d{1,18})")
_WHOLE = re.compile(r"-?\d{1,18}")
_MOST = 10**18
FULL = "full"
"""The whole training set as one batch."""

BatchSize = int | str


class GridError(ValueError):
    """What cannot be a batch size; the caller knows where it stands."""

    def __init__(self, message: str, hint: str | None = None, position: int | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.position = position
        """Which item of the list, where it is one."""


def batch_sizes(value: Any) -> tuple[BatchSize, ...]:
    """Integers and ``full``, in the order given; whether they fit the data is not known here.

    Args:
        value: ``8``, ``"8..4096"``, ``"1..1024, full"``, or a list of such.

    Raises:
        GridError: an item is none of these, a size below 1, a reversed range, a repetition.
    """
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    found: dict[BatchSize, None] = {}
    for position, item in enumerate(items):
        parts = [p.strip() for p in item.split(",")] if isinstance(item, str) else [item]
        for part in parts:
            try:
                sizes = _sizes(part)
            except GridError as error:
                error.position = position
                raise
            for size in sizes:
                if size in found:
                    raise GridError(f"batch size {size} is said twice", "keep one", position)
                found[size] = None
    if not found:
        raise GridError("no batch sizes", "for example: 8..4096")
    return tuple(found)


def _sizes(item: Any) -> list[BatchSize]:
    if isinstance(item, bool) or not isinstance(item, (int, float, str)):
        raise GridError(f"{item!r} is not a batch size", "for example: 8..4096, or [8, 32, full]")
    if isinstance(item, str):
        if item == FULL:
            return [FULL]
        match = _RANGE.fullmatch(item)
        if match:
            return list(_doubling(int(match[1]), int(match[2]), item))
        if not _WHOLE.fullmatch(item):
            raise GridError(f"{item!r} is not a batch size", "for example: 8..4096, 64 or full")
    elif isinstance(item, float) and not item.is_integer():
        raise GridError(f"batch size {item} is not a whole number")
    if abs(float(item)) > _MOST:
        raise GridError(f"batch size {float(item):g} is no number of examples")
    size = int(item)
    if size < 1:
        raise GridError(f"batch size {size} is below 1")
    return [size]


def _doubling(low: int, high: int, text: str) -> list[int]:
    if low < 1:
        raise GridError(f"{text}: batch size {low} is below 1", "start at 1")
    if high < low:
        raise GridError(
            f"the range {text} is reversed", f"write {high}..{low}" if high > 0 else None
        )
    sizes = [low]
    while sizes[-1] * 2 <= high:
        sizes.append(sizes[-1] * 2)
    return sizes


def resolve(sizes: Sequence[BatchSize], train_size: int) -> list[int]:
    """The sizes with ``full`` as the training set, in ascending order.

    Raises:
        GridError: a size over the training set, or ``full`` beside its own number.
    """
    found: set[int] = set()
    for size in sizes:
        number = train_size if isinstance(size, str) else size
        if number > train_size:
            raise GridError(
                f"batch size {number} is over the training set ({count(train_size, 'example')})",
                "`full` is the whole training set as one batch",
            )
        if number in found:
            raise GridError(f"batch size {number} is said twice: full is {train_size}", "keep one")
        found.add(number)
    return sorted(found)
