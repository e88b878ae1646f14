"""``batchscale export KIND SOURCE -o DIR``: results in the form that another program reads."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.options import Where
from batchscale.output.progress import ProgressLines
from results.counts import count

if TYPE_CHECKING:
    from results.exports import Exported

_MANY = 1_000
"""Runs of which TensorBoard is known to take minutes to load."""


def _so_far(done: Exported) -> str:
    return (
        f"{done.trials:,} of {count(done.of, 'trial')}, {count(done.measurements, 'measurement')}"
    )


def export(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="For which program: batchscale list exports.")
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
        typer.Option("--output", "-o", metavar="DIR", help="A new folder, or an earlier export's."),
    ],
    where: Where = None,
) -> None:
    """Write results for another program: TensorBoard. The same again changes nothing."""
    from batchscale import api

    done = api.export(kind, source, output=output, where=where, progress=ProgressLines(_so_far))
    what = f"{count(done.trials, 'trial')} with {count(done.measurements, 'measurement')}"
    if done.changed == done.trials:
        print(f"exported {what} to {done.output}")
    elif done.changed:
        print(f"exported {what} to {done.output}, {done.changed:,} of them new or changed")
    else:
        print(f"{done.output} has these {what} already")
    print(f"next: tensorboard --logdir {done.output}")
    if done.trials > _MANY:
        print(
            f"note: TensorBoard is slow with {count(done.trials, 'run')}; --where picks some",
            file=sys.stderr,
        )
