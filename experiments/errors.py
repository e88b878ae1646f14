"""The error of this package: one line that names the thing and the place, and a hint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from results.errors import ClearError
from workloads.errors import nearest

__all__ = [
    "DeviceError",
    "ExperimentError",
    "PlacedError",
    "ProgramError",
    "TrainingError",
    "below",
    "elsewhere",
    "nearest",
]


class ExperimentError(ClearError):
    """Something the user can mend. The message is printed, then the hint."""

    def __init__(
        self, message: str, *, hint: str | None = None, at: Sequence[str | int] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.at = tuple(at)
        """Where in the value that is wrong: keys and positions, from its top."""


class PlacedError(ExperimentError):
    """One that begins with its place: a file and a line, or a setting."""


class DeviceError(ExperimentError):
    """What was asked for is not on this device, and may be on another."""


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


class ProgramError(RuntimeError):
    """A user's program ended where it should not have; before the last line its last output."""


@contextlib.contextmanager
def below(key: str | int) -> Iterator[None]:
    """What is raised inside is wrong below this key or position of a value."""
    try:
        yield
    except ExperimentError as error:
        error.at = (key, *error.at)
        raise


_BUDGET = 'the most that a trial trains is its budget: "50 epochs + 2000 steps"'
_TRIALS = "the number of trials of a study is written so: trials: 64"
_TARGET = 'the metric and its goal are the target: "validation_error < 0.05"'
_FACTORS = "what is tuned is below search, what is compared below grid"
_ELSEWHERE = {
    **dict.fromkeys(("epoch", "epochs", "steps", "iterations", "iters"), _BUDGET),
    **dict.fromkeys(("samples", "n_trials"), _TRIALS),
    **dict.fromkeys(("metric", "goal"), _TARGET),
    **dict.fromkeys(("parameters", "params"), _FACTORS),
    "lr": "it is tuned, below search: learning_rate: {log: [1e-3, 1]}",
    "model": "the model is that of the workload: FILE.py:CLASS, or a name",
}


def elsewhere(key: str) -> str | None:
    """What is written here for a key that other programs have; None for a key that none is known
    to have."""
    plain = key.lower().replace("-", "_").removeprefix("max_").removeprefix("num_")
    return _ELSEWHERE.get(plain)
