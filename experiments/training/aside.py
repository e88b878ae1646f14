"""Trials set aside: dominated in a round that is not the last, with all that it takes to go on.

Where a later round's bar lies further, such a trial goes on from here; else it stays as it ended.
What is not here (a model too large to keep, a file that was lost) is trained again from the start,
with the same result.
"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import torch

from experiments.engines.base import gather
from experiments.training.course import Course

_LARGEST_BYTES = 32 * 2**20
"""Of one trial. Half of a study's trials may be set aside at once."""


def write(course: Course, state: Any) -> bytes | None:
    """A trial at a look as bytes, ``None`` if they are too many.

    ``state``: what its engine has copied of it; no other kind can restore that.
    """
    cpu = torch.device("cpu")
    # A walk back may begin from the look it stands at: of that the state says all.
    held = (replace(course, held=None), gather(state, cpu))
    buffer = io.BytesIO()
    torch.save(held, buffer)
    return buffer.getvalue() if buffer.tell() <= _LARGEST_BYTES else None


def read(data: bytes) -> tuple[Course, Any]:
    """A trial's course, and its state for the engine."""
    course, state = torch.load(io.BytesIO(data), weights_only=False)
    return course, state
