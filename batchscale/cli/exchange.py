"""``batchscale import`` and ``batchscale export``: data from and for other programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.kinds import chosen_kind
from batchscale.cli.options import Results, Where
from batchscale.output.progress import ProgressLines, say
from results.counts import count
from results.errors import ResultsError

if TYPE_CHECKING:
    from results.exports import Exported
    from results.imports import Imported

_REFUSALS = 20
"""Lines about what was left out."""


def import_(
    ctx: typer.Context,
    given: Annotated[
        list[str],
        typer.Argument(
            metavar="[KIND] PATH",
            help="A file or a folder; of a KIND that is no log: batchscale list imports, or "
            "file.py:Name.",
        ),
    ],
    results: Results = None,
) -> None:
    """Import a log, of any training run. A second run changes nothing.

    What it took for what is said; --map NAME=THEIRS says otherwise. The options of another kind:
    batchscale import KIND --help.
    """
    from batchscale import api
    from results.extensions import IMPORTS

    importer, options = chosen_kind(ctx)
    *kind, path = given
    if len(kind) > 1 or not all(".py:" in each or IMPORTS.knows(each) for each in kind):
        raise ResultsError(f"import takes one PATH: {' '.join(given)}", hint="a folder may be one")
    done = api.take_in(
        importer, path, results=results, progress=ProgressLines(_imported), **options
    )
    for line in done.said:
        say(line, file=sys.stderr)
    for what, why in done.refused[:_REFUSALS]:
        say(f"left out {what}: {why}", file=sys.stderr)
    if len(done.refused) > _REFUSALS:
        say(f"left out {len(done.refused) - _REFUSALS:,} more", file=sys.stderr)
    if done.ignored:
        say(f"{count(len(done.ignored), 'file', 'do')} not belong to it: not read", file=sys.stderr)
    what = f"{count(done.trials, 'trial')} of {count(done.studies, 'study')}"
    if done.measurements:
        what += f" with {count(done.measurements, 'measurement')}"
    if done.fresh:
        say(f"imported {what} into {done.results} as experiment {done.experiment}")
    else:
        say(f"{done.results} has these {what} already, as experiment {done.experiment}")


def export(
    ctx: typer.Context,
    kind: Annotated[  # noqa: ARG001
        str,
        typer.Argument(
            metavar="KIND", help="For which program: batchscale list exports; or file.py:Name."
        ),
    ],
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A results folder or URI, `own`, or a CSV or Parquet file of whole curves.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="DIR", help="A new folder, or one of an earlier export."
        ),
    ],
    where: Where = None,
) -> None:
    """Write results for another program: TensorBoard. A second run changes nothing.

    The options of a kind: batchscale export KIND --help.
    """
    from batchscale import exchange

    exporter, options = chosen_kind(ctx)
    done = exchange.export(
        exporter, source, output=output, where=where, progress=ProgressLines(_exported), **options
    )
    what = f"{count(done.trials, 'trial')} with {count(done.measurements, 'measurement')}"
    if done.changed == done.trials:
        say(f"exported {what} to {done.output}")
    elif done.changed:
        say(f"exported {what} to {done.output}, {done.changed:,} of them new or changed")
    else:
        say(f"{done.output} has these {what} already")
    if done.next:
        say(f"next: {done.next}")
    for note in done.notes:
        say(f"note: {note}", file=sys.stderr)


def _imported(done: Imported) -> str:
    return f"{count(done.trials, 'trial')}, {count(done.measurements, 'measurement')}"


def _exported(done: Exported) -> str:
    trials = f"{done.trials:,} of {count(done.of, 'trial')}"
    return f"{trials}, {count(done.measurements, 'measurement')}"
