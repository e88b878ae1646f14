"""How far a long computation is, for whoever wants to hear of it.

``with telling(print): ...`` hears lines such as "12 of 35 curves fitted"; else nobody is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_TOLD: ContextVar[Callable[[str], object] | None] = ContextVar("told", default=None)


@contextmanager
def telling(told: Callable[[str], object]) -> Iterator[None]:
    """Call ``told`` with how far it is, in words, as often as something more is done."""
    before = _TOLD.set(told)
    try:
        yield
    finally:
        _TOLD.reset(before)


def each(many: Collection[T], words: str) -> Iterator[T]:
    """Go through ``many`` and tell how many are done: ``12 of 35`` and ``words``."""
    for done, one in enumerate(many):
        yield one
        told = _TOLD.get()
        if told is not None:
            told(f"{done + 1:,} of {len(many):,} {words}")
