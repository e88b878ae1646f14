"""What a pack's own code raised, as it travels from a worker to the person who can mend it."""

from __future__ import annotations

import shlex
import sysconfig
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from experiments.errors import ExperimentError
from results.errors import line
from results.storage.masking import masked

_ROOT = Path(__file__).resolve().parent.parent.parent
OURS = ("batchscale", "workloads", "experiments", "results", "analysis")
_SAME = 3
"""Packs that may raise the same exception before the sweep stops."""


class TrainingError(ExperimentError):
    """The user's own code raised in a worker.

    ``traceback`` is text, from their first frame on; ``reproduce`` the command that meets it again.
    """

    def __init__(
        self, message: str, *, hint: str | None, traceback: str, reproduce: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.traceback = traceback
        self.reproduce = reproduce


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An exception, as text."""

    message: str
    """Its last line: ``ValueError: what it says``, or the message of a clear error."""
    hint: str | None
    traceback: str
    """From the first frame of the user's own on; all of it where there is none."""
    where: str
    """``ValueError at my_model.py:12``: the same for the same exception in another pack."""
    clear: bool
    """One of ours, written for the user: every other pack of its kind would say the same."""
    trial: str | None = None
    """The trial that raised it, where the pack had one."""

    @classmethod
    def of(
        cls,
        error: BaseException,
        trial: str | None = None,
        moved: tuple[str, str] | None = None,
    ) -> Failure:
        """Describe an exception that is being handled.

        Args:
            moved: a folder of the worker's, and the user's that it is a copy of.
        """
        frame = own_frame(error.__traceback__)
        last = traceback.extract_tb(frame or error.__traceback__)
        place = f"{Path(last[-1].filename).name}:{last[-1].lineno}" if last else "?"
        if frame is not None:
            text = "".join(traceback.format_exception(type(error), error, frame, chain=False))
        elif isinstance(error, SyntaxError) and error.filename and is_users(error.filename):
            # A file that does not parse has no frame; the error names it.
            text = "".join(traceback.format_exception_only(error))
            place = f"{Path(error.filename).name}:{error.lineno}"
        else:
            text = "".join(traceback.format_exception(error))
        if moved:
            text = text.replace(*moved)
        clear = hasattr(error, "hint") and type(error).__module__.split(".")[0] in OURS
        only = " ".join("".join(traceback.format_exception_only(error)).split())
        hint: str | None = getattr(error, "hint", None)
        return cls(
            message=line(str(error) if clear else only),
            hint=hint and line(hint),
            traceback=masked(text).encode("utf-8", "backslashreplace").decode(),
            where=f"{type(error).__name__} at {place}",
            clear=clear,
            trial=trial,
        )

    def error(self, reproduce: str | None = None) -> ExperimentError:
        """The exception that tells the user."""
        if self.clear:
            return ExperimentError(self.message, hint=self.hint)
        hint = f"the same again: {reproduce}" if reproduce else self.hint
        return TrainingError(self.message, hint=hint, traceback=self.traceback, reproduce=reproduce)


def reproducing(trial: str, root: str, folder: str | None) -> str:
    """The shell command that trains a recorded trial again, in the engine that trained it.

    Args:
        root: the results folder or URI.
        folder: where the names of the user's files start; ``None`` where the trial needs none.
    """
    line = shlex.join(["batchscale", "trial", "--from", trial, "--results", root])
    if folder is None or Path(folder).resolve() == Path.cwd():
        return line
    return f"cd {shlex.quote(folder)} && {line}"


class Failures:
    """Counts what packs raised, by the shape of their studies."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str]] = Counter()
        self._proven: set[str] = set()
        self._succeeded: set[str] = set()
        self._last: Failure | None = None

    def proven(self, shape: str) -> bool:
        """Whether studies of this shape have been seen to train."""
        return shape in self._proven

    def prove(self, shape: str) -> None:
        """A pack of this shape trains."""
        self._proven.add(shape)

    def succeed(self, shape: str) -> None:
        """A trial of this shape has ended without raising."""
        self._proven.add(shape)
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


def own_frame(frame: TracebackType | None) -> TracebackType | None:
    """The first frame that is neither ours nor an installed package's."""
    while frame is not None and not is_users(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return frame


def is_users(filename: str) -> bool:
    # A library's compiled code calls its frames by sources that are not here: pandas/_libs/x.pxi.
    if filename.startswith("<") or not filename.endswith(".py"):
        return False
    path = Path(filename).resolve()
    if any(path.is_relative_to(_ROOT / package) for package in OURS):
        return False
    paths = sysconfig.get_paths()
    return not any(
        path.is_relative_to(Path(paths[key]).resolve())
        for key in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    )
