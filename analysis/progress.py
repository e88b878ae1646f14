"""How far a long computation is: lines such as "12 of 35 curves fitted"."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

T = TypeVar("T")

Progress = Callable[[str], object]
"""Is called with a line each time that a part of the work is done."""


def each(items: Collection[T], text: str, progress: Progress | None) -> Iterator[T]:
    """Go through ``items`` and report how many are done: ``12 of 35`` and ``text``."""
    for done, item in enumerate(items, start=1):
        yield item
        if progress is not None:
            progress(f"{done:,} of {len(items):,} {text}")
