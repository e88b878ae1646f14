"""What went wrong, said once: one line, a hint, and the traceback only of the user's own code.

Exit status: 0; 1 a clear error; 2 wrong usage; 3 finished, some trials failed; 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback

from experiments.driver.failures import OURS, is_users, own_frame

ERROR, USAGE, FAILED_TRIALS, INTERRUPTED = 1, 2, 3, 130


class CommandError(Exception):
    """A clear error of the front door itself: one line, and a hint."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def report(error: BaseException, *, debug: bool = False, reproduce: str | None = None) -> int:
    """Print ``error`` on stderr as its kind asks for; return the exit status.

    ``reproduce`` is the command that meets the same error again, shown where the error rose in
    the user's own file.
    """
    if isinstance(error, KeyboardInterrupt):
        if str(error):
            print(error, file=sys.stderr)
        return INTERRUPTED
    if debug:
        traceback.print_exception(error)
    hint: str | None = getattr(error, "hint", None)
    if _clear(error):
        if text := getattr(error, "traceback", None):  # of the user's code, in a worker
            print(text.rstrip("\n"), file=sys.stderr)
        _say(str(error), hint)
        return ERROR
    own = None if debug else user_frames(error)
    if own is not None:
        print(own, end="", file=sys.stderr)
    if isinstance(error, OSError) and error.strerror and own is None:
        _say(f"{error.strerror}{f': {error.filename}' if error.filename else ''}", hint)
        return ERROR
    if own is not None:
        _say(
            one_line(error),
            f"the same again: {reproduce}" if reproduce else "it rose in your file, above",
        )
    else:
        _say(
            one_line(error),
            None if debug else "that is not an error of yours: --debug shows where it rose",
        )
    return ERROR


def one_line(error: BaseException) -> str:
    """The last line of its traceback: ``ValueError: what it says``."""
    return " ".join("".join(traceback.format_exception_only(error)).split())


def user_frames(error: BaseException) -> str | None:
    """The traceback from the first frame in the user's own code on; None if it never got there."""
    frame = own_frame(error.__traceback__)
    if frame is not None:
        return "".join(traceback.format_exception(type(error), error, frame, chain=False))
    # A file that does not parse has no frame; the error names it.
    if isinstance(error, SyntaxError) and error.filename and is_users(error.filename):
        return "".join(traceback.format_exception_only(error))
    return None


def _clear(error: BaseException) -> bool:
    """Whether the message was written for the user."""
    return isinstance(error, CommandError) or any(
        cls.__module__.endswith(".errors") and cls.__module__.split(".")[0] in OURS
        for cls in type(error).__mro__
    )


def _say(message: str, hint: str | None) -> None:
    print(f"error: {message}", file=sys.stderr)
    if hint:
        print(f"hint: {hint}", file=sys.stderr)
