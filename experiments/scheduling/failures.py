"""Exceptions of a pack's own code, as text, and when they stop the sweep."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from experiments.errors import ExperimentError

_SAME = 3
"""Packs that may raise the same exception before the sweep stops."""


Cause = Literal["raised", "memory", "hung", "died", "lost"]
"""``raised``: an exception. ``memory``: one that says that there is not enough. ``hung``: no
progress for too long. ``died``: its worker's process ended. ``lost``: with its node, or ended from
outside; this says nothing of the trials."""


class TrainingError(ExperimentError):
    """The user's own code raised in a worker.

    ``traceback`` is text, from their first frame on; ``reproduce`` the command that raises it
    again.
    """

    def __init__(
        self, message: str, *, hint: str | None, traceback: str, reproduce: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.traceback = traceback
        self.reproduce = reproduce


class RankLostError(Exception):
    """A rank of a worker group has died: its pack is not at fault, and goes on from its snapshot on
    another group."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An exception, as text."""

    message: str
    """Its last line: ``ValueError: its message``, or the message of a clear error."""
    hint: str | None
    traceback: str
    """The traceback from the first frame of the user's code on; all of it if there is none."""
    where: str
    """``ValueError at my_model.py:12``: the same for the same exception in another pack."""
    clear: bool
    """Whether it is a clear error of ours: every other pack of its kind would raise the same."""
    trial: str | None = None
    """The trial that raised it, where that is known: it is recorded."""
    cause: Cause = "raised"
    deaths: int = 1
    """Of one that died: deaths in a row that it stands for."""
    patience: float | None = None
    """Of one that hung: seconds without progress after which it counted so."""

    def error(self, reproduce: str | None = None) -> ExperimentError:
        """The exception to raise in the sweep."""
        if self.clear:
            return ExperimentError(self.message, hint=self.hint)
        hint = f"the same again: {reproduce}" if reproduce else self.hint
        return TrainingError(self.message, hint=hint, traceback=self.traceback, reproduce=reproduce)


class Failures:
    """Counts what packs raised, by the shape of their studies."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()
        self.proven: set[str] = set()
        """Shapes of which a pack has been seen to train."""
        self._succeeded: set[str] = set()
        self._last: Failure | None = None

    def succeed(self, shape: str) -> None:
        """Note that a trial of this shape has ended without raising."""
        self.proven.add(shape)
        self._succeeded.add(shape)

    def add(self, shape: str, failure: Failure) -> bool:
        """Count a failed pack; whether the sweep is to stop.

        It is at a clear error, and at the same exception in three packs of a shape of which no
        trial has ended well.
        """
        self._last = failure
        self._seen[shape, failure.where] += 1
        if failure.clear:
            return True
        return shape not in self._succeeded and self._seen[shape, failure.where] >= _SAME

    def hopeless(self) -> Failure | None:
        """The last failure, if no trial of any shape has ended well."""
        return None if self._succeeded else self._last
