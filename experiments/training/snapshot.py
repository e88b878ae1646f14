"""Training as bytes: a snapshot of a pack, and one paused trial; strictly read, never unpickled."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from experiments.encoding import MalformedError, decode, encode, from_fields, to_fields
from experiments.engines.base import gather
from experiments.training.stopping import TrialProgress

LARGEST_BYTES = 32 * 2**20
"""Largest bytes of one paused trial. Half of a study's trials may be paused at once."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All that a pack needs to go on exactly, as CPU tensors and plain values."""

    engine: Literal["module", "stacked"]
    state: dict[str, Any]
    """The engine's state of the trials in ``progress``."""
    progress: dict[str, TrialProgress]
    """Progress of the trials still training, in the engine's order."""
    hits: list[int]
    """Steps to target of the pack's own trials."""
    seconds: tuple[float, float, float]
    """Seconds of training, of evaluation, and in all."""

    def encode(self) -> bytes:
        """
        Raises:
            UnencodableError: the state holds what cannot be kept.
        """
        progress = {trial: to_fields(each) for trial, each in self.progress.items()}
        return encode({**to_fields(self), "progress": progress})

    @classmethod
    def decode(cls, data: bytes, trials: Collection[str]) -> Snapshot:
        """A snapshot of a pack of these trials.

        Raises:
            MalformedError: it is not a snapshot of this pack.
        """
        content = decode(data)
        progress = content.get("progress") if isinstance(content, dict) else None
        if not isinstance(progress, dict) or not progress or not progress.keys() <= set(trials):
            raise MalformedError("not a snapshot of these trials")
        read = {trial: from_fields(TrialProgress, each) for trial, each in progress.items()}
        return from_fields(cls, {**content, "progress": read})


@dataclass(frozen=True, kw_only=True)
class PausedTrial:
    """A trial that was dominated in a round that is not the last, with all that it needs to go on.

    Where a later round's smallest steps to target lie further, it goes on from here; else it stays
    as it ended. A trial that was too large to keep, or whose file was lost, is trained again from
    the start, with the same result.
    """

    progress: TrialProgress
    state: Any
    """Its engine's copy of it; no other kind of engine can restore it."""

    def encode(self) -> bytes | None:
        """``None`` if the bytes are too many.

        Raises:
            UnencodableError: the state holds what cannot be kept.
        """
        state = gather(self.state, torch.device("cpu"))
        data = encode({"progress": to_fields(self.progress), "state": state})
        return data if len(data) <= LARGEST_BYTES else None

    @classmethod
    def decode(cls, data: bytes) -> PausedTrial:
        """
        Raises:
            MalformedError: ``encode`` did not write it.
        """
        content = decode(data)
        if not isinstance(content, dict) or content.keys() != {"progress", "state"}:
            raise MalformedError("not a paused trial")
        return cls(progress=from_fields(TrialProgress, content["progress"]), state=content["state"])


@contextmanager
def fitting() -> Iterator[None]:
    """Turn an engine's error about a state of another form into ours.

    Raises:
        MalformedError: in its place.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise MalformedError("a state of another engine or pack") from error
