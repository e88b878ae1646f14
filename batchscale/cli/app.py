"""The program ``batchscale``: its commands by name, how they start, and how their errors end it.

It imports nothing heavy: each command imports what it needs when it runs.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated

import typer

from batchscale.cli import analysis, branch, data, exchange, plan, sweep, trial
from batchscale.cli.kinds import KindCommand

app = typer.Typer(
    name="batchscale",
    help="How far can the batch grow before a bigger one stops buying fewer steps?",
    epilog="Begin with: batchscale sweep digits, then batchscale regimes results/runs.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
)
COMMANDS: dict[str, Callable[..., int | None]] = {
    "sweep": sweep.sweep,
    "status": sweep.status,
    "trial": trial.trial,
    "check": trial.check,
    "new": trial.new,
    "logs": trial.logs,
    "regimes": analysis.regimes,
    "techniques": analysis.techniques,
    "plan": plan.plan,
    "branch": branch.branch,
    "plot": analysis.plot,
    "report": analysis.report,
    "query": data.query,
    "fsck": data.fsck,
    "compact": data.compact,
    "import": exchange.import_,
    "export": exchange.export,
    "serve": analysis.serve,
    "list": data.listing,
}


class _CommandError(Exception):
    """A command raised ``error``."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _version(wanted: bool) -> None:
    if wanted:
        import batchscale

        print(f"batchscale {batchscale.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole traceback of an error.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options that every command takes, before its name or after."""
    del debug, version  # ``run`` takes out --debug, at any position


def _command(function: Callable[..., int | None]) -> Callable[..., int]:
    @wraps(function)
    def run(*args: object, **kwargs: object) -> int:
        try:
            status = function(*args, **kwargs)
            sys.stdout.flush()
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            raise _CommandError(error) from error
        return status or 0

    return run


for _name, _function in COMMANDS.items():
    _class = KindCommand if _name in ("import", "export") else None
    app.command(_name, cls=_class)(_command(_function))


def run(arguments: Sequence[str]) -> int:
    """Run a command; its exit status. ``--debug`` may be at any place among the arguments."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed (`>&-`): the next file that opens would be it
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A name that is not UTF-8, or a terminal that has only ASCII: escape it, no error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    rest = [argument for argument in arguments if argument != "--debug"]
    try:
        status: int | None = app(args=rest, prog_name="batchscale", standalone_mode=False)
    except BrokenPipeError:
        # The reader has gone (`| head`). Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except typer.Abort:
        print("Aborted!", file=sys.stderr)
        return 1
    except _CommandError as failed:
        from batchscale.output.errors import report

        return report(failed.error, debug="--debug" in arguments, given=arguments)
    except Exception as error:
        return _wrong_usage(error, arguments)
    return status or 0


def _wrong_usage(error: Exception, arguments: Sequence[str]) -> int:
    """Print an error of typer's as typer does, with the keys in addresses masked; its status."""
    from results.storage.masking import masked

    if not hasattr(error, "show"):
        raise error
    text = io.StringIO()
    error.show(file=text)
    if "query" in arguments and "unexpected extra argument" in text.getvalue():
        text.write('Hint: the SQL is one argument, in quotes: batchscale query "SELECT …"\n')
    print(masked(text.getvalue(), *arguments), end="", file=sys.stderr)
    return int(getattr(error, "exit_code", 2))
