"""A pack that is being trained, as bytes: all that it takes to go on exactly."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from experiments.encoding import MalformedError, decode, encode, from_fields, to_fields
from experiments.training.trial_progress import TrialProgress


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What a ``Training`` holds besides its pack, as CPU tensors and plain values."""

    engine: Literal["module", "stacked"]
    state: dict[str, Any]
    """The engine's, of the trials in ``courses``."""
    courses: dict[str, TrialProgress]
    """Of the trials still training, in the engine's order."""
    reached: list[int]
    least: int
    seconds: tuple[float, float, float]

    def encode(self) -> bytes:
        """
        Raises:
            UnencodableError: the state holds what cannot be kept.
        """
        courses = {trial: course.to_plain() for trial, course in self.courses.items()}
        return encode({**to_fields(self), "courses": courses})

    @classmethod
    def decode(cls, data: bytes, trials: Collection[str]) -> Snapshot:
        """A snapshot of a pack of these trials.

        Raises:
            MalformedError: it is none.
        """
        content = decode(data)
        courses = content.get("courses") if isinstance(content, dict) else None
        if not isinstance(courses, dict) or not courses or not courses.keys() <= set(trials):
            raise MalformedError("not a snapshot of these trials")
        read = {trial: TrialProgress.from_plain(course) for trial, course in courses.items()}
        return from_fields(cls, {**content, "courses": read})
