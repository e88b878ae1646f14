"""The way into the program and out of it: what every command has, whatever it does."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import typer


def enter(app: typer.Typer, given: Sequence[str]) -> int:
    """Run what was typed; its exit status. A wrong use (2) is shown as typer shows it, but for
    the keys of addresses among the arguments."""
    for stream in (sys.stdout, sys.stderr):
        # A name that is no UTF-8, or a terminal that knows ASCII alone: escaped, not an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status: int | None = app(args=list(given), prog_name="batchscale", standalone_mode=False)
    except BrokenPipeError:
        # The reader has gone (`| head`). Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except typer.Abort:
        print("Aborted!", file=sys.stderr)
        return 1
    except Exception as error:
        show = getattr(error, "show", None)
        if show is None:  # not one of click's, wherever typer has them from
            raise
        from results.storage.masking import masked

        said = io.StringIO()
        show(file=said)
        print(masked(said.getvalue(), *given), end="", file=sys.stderr)
        return int(getattr(error, "exit_code", 2))
    return status or 0
