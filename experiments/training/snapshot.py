"""Trials in training as bytes: a pack's snapshot, and a paused trial; strictly read, never
unpickled."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from experiments.encoding import MalformedError, decode, encode, from_fields, to_fields
from experiments.training.stopping import TrialProgress

LARGEST_BYTES = 32 * 2**20
"""Largest bytes of one paused trial. Half of a study's trials may be paused at once."""


@dataclass(frozen=True, kw_only=True)
class SavedTrial:
    """A trial with all that it needs to go on exactly.

    One that was dominated in a round that is not the last is *paused* so. Where a later round's
    smallest steps to target lie further, it goes on from here; else it stays as it ended. A trial
    that was too large to keep, or whose file was lost, is trained again from the start, with the
    same result.
    """

    progress: TrialProgress
    state: Any
    """Its engine's copy of it; no other kind of engine can restore it."""

    def to_plain(self) -> dict[str, Any]:
        """As ``encode`` takes it, for ``from_plain``."""
        return {"progress": to_fields(self.progress), "state": self.state}

    @classmethod
    def from_plain(cls, content: Any) -> SavedTrial:
        """
        Raises:
            MalformedError: ``to_plain`` did not make it.
        """
        if type(content) is not dict:
            raise MalformedError("not a trial in training")
        progress = from_fields(TrialProgress, content.get("progress"))
        return from_fields(cls, {**content, "progress": progress})

    def encode(self) -> bytes | None:
        """``None`` if the bytes are too many.

        Raises:
            UnencodableError: the state holds what cannot be kept.
        """
        data = encode(self.to_plain())
        return data if len(data) <= LARGEST_BYTES else None

    @classmethod
    def decode(cls, data: bytes) -> SavedTrial:
        """
        Raises:
            MalformedError: ``encode`` did not write it.
        """
        return cls.from_plain(decode(data))


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All that a pack needs to go on exactly."""

    engine: Literal["module", "stacked"]
    trials: dict[str, SavedTrial]
    """Those still training, in the engine's order."""
    hits: list[int]
    """Steps to target of the pack's own trials."""
    seconds: tuple[float, float, float]
    """Seconds of training, of evaluation, and in all."""

    def encode(self) -> bytes:
        """
        Raises:
            UnencodableError: the state holds what cannot be kept.
        """
        # In a list: what cannot be kept is named by its place in a trial, not by the trial.
        trials = [(trial, each.to_plain()) for trial, each in self.trials.items()]
        return encode({**to_fields(self), "trials": trials})

    @classmethod
    def decode(cls, data: bytes, trials: Collection[str]) -> Snapshot:
        """A snapshot of a pack of these trials.

        Raises:
            MalformedError: it is not a snapshot of this pack.
        """
        content = decode(data)
        try:
            plain = dict(content["trials"])
        except (LookupError, TypeError, ValueError) as error:
            raise MalformedError("not a snapshot") from error
        if not plain or not plain.keys() <= set(trials):
            raise MalformedError("not a snapshot of these trials")
        read = {trial: SavedTrial.from_plain(each) for trial, each in plain.items()}
        return from_fields(cls, {**content, "trials": read})


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
