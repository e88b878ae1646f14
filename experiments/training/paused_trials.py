"""Paused trials: dominated in a round that is not the last, with all that it takes to go on.

Where a later round's bar lies further, such a trial goes on from here; else it stays as it ended.
What is not here (a model too large to keep, a file that was lost) is trained again from the start,
with the same result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from experiments.encoding import MalformedError, decode, encode
from experiments.engines.base import gather
from experiments.training.trial_progress import TrialProgress

_LARGEST_BYTES = 32 * 2**20
"""Of one trial. Half of a study's trials may be paused at once."""


def write(course: TrialProgress, state: Any) -> bytes | None:
    """A trial at a look as bytes, ``None`` if they are too many.

    ``state``: what its engine has copied of it; no other kind can restore that.

    Raises:
        UnencodableError: the state holds what cannot be kept.
    """
    # A walk back may begin from the look it stands at: of that the state says all.
    plain = replace(course, held=None).to_plain()
    data = encode({"course": plain, "state": gather(state, torch.device("cpu"))})
    return data if len(data) <= _LARGEST_BYTES else None


def read(data: bytes) -> tuple[TrialProgress, Any]:
    """A trial's course, and its state for the engine.

    Raises:
        MalformedError: ``write`` did not write it.
    """
    content = decode(data)
    if not isinstance(content, dict) or content.keys() != {"course", "state"}:
        raise MalformedError("not a paused trial")
    return TrialProgress.from_plain(content["course"]), content["state"]
