"""Errors on the terminal: one line, a hint, and a traceback of the user's own code alone.

Exit status: 0; 1 a clear error; 2 wrong usage; 3 finished, some trials failed; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from experiments.execution.failures import is_users, user_frame
from results.errors import ClearError, line, lines
from results.storage.masking import masked, without_variables
from workloads.user_code.local_imports import PACKAGED

ERROR, USAGE, FAILED_TRIALS, NOT_COMPLETE, INTERRUPTED = 1, 2, 3, 4, 130


class CommandError(ClearError):
    """A clear error of the public interface itself: one line, and a hint."""


def report(
    error: BaseException,
    *,
    debug: bool = False,
    reproduce: str | None = None,
    given: Sequence[str] = (),
) -> int:
    """Print ``error`` on stderr as its kind asks for; return the exit status.

    Args:
        reproduce: the command that raises the same error again, shown where the error was raised
            in the user's own file.
        given: the command's arguments: keys of addresses among them are never printed.
    """

    def put(text: str) -> None:
        text = masked(without_variables(text), *given, os.environ.get("BATCHSCALE_RESULTS", ""))
        print(lines(text), file=sys.stderr)

    def say(message: str, hint: str | None) -> None:
        put(f"error: {line(message)}")
        if hint:
            put(f"hint: {line(hint)}")

    if isinstance(error, KeyboardInterrupt):
        if str(error):
            put(str(error))
        return INTERRUPTED
    if debug:
        put("".join(traceback.format_exception(error)).rstrip("\n"))
    hint: str | None = getattr(error, "hint", None)
    if _clear(error):
        if text := getattr(error, "traceback", None):  # of the user's code, in a worker
            put(text.rstrip("\n"))
        say(str(error), hint)
        return ERROR
    frames = None if debug else user_frames(error)
    if frames is not None:
        put(frames.rstrip("\n"))
    if isinstance(error, OSError) and error.strerror and frames is None:
        say(f"{error.strerror}{f': {error.filename}' if error.filename else ''}", hint)
        return ERROR
    if frames is not None:
        say(
            summary_line(error),
            f"the same again: {reproduce}"
            if reproduce
            else "raised in your file; see the traceback above",
        )
    else:
        say(
            summary_line(error),
            None if debug else "an error in batchscale, not in yours: --debug shows the traceback",
        )
    return ERROR


def summary_line(error: BaseException) -> str:
    """The last line of its traceback: ``ValueError: message``."""
    return line(" ".join("".join(traceback.format_exception_only(error)).split()))


def user_frames(error: BaseException) -> str | None:
    """The traceback from the first frame in the user's own code on; None if it never got there."""
    frame = user_frame(error.__traceback__)
    if frame is not None:
        return "".join(traceback.format_exception(type(error), error, frame, chain=False))
    # A file that does not parse has no frame; the error names it.
    if isinstance(error, SyntaxError) and error.filename and is_users(error.filename):
        return "".join(traceback.format_exception_only(error))
    return None


def _clear(error: BaseException) -> bool:
    """Whether the message was written for the user."""
    return isinstance(error, CommandError) or any(
        cls.__module__.endswith(".errors") and cls.__module__.split(".")[0] in PACKAGED
        for cls in type(error).__mro__
    )
