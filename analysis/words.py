"""Words that notes share."""

from __future__ import annotations

from collections.abc import Sequence


def sizes(some: Sequence[int]) -> str:
    """``batch size 8``, ``batch sizes 8, 16``."""
    return ("batch size " if len(some) == 1 else "batch sizes ") + ", ".join(map(str, some))
