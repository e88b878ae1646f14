"""``batchscale import KIND PATH``: data from elsewhere, brought into a results folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.options import Results
from batchscale.output.progress import ProgressLines
from results.counts import count

if TYPE_CHECKING:
    from results.imports.commit_import import Imported


_SHOWN = 20


def _so_far(done: Imported) -> str:
    return f"{count(done.trials, 'trial')}, {count(done.measurements, 'measurement')}"


def import_(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="What PATH is: batchscale list imports.")
    ],
    path: Annotated[str, typer.Argument(metavar="PATH", help="A file or a folder.")],
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="NAME=THEIRS",
            help="A column of the file under its name here: --map batch_size=bs --map steps=iters.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The experiment that the rows become. Else the file's."),
    ] = None,
    citation: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Whose data it is, for the sources.")
    ] = None,
    licence: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What may be done with it, for the sources.")
    ] = None,
    results: Results = None,
) -> None:
    """Bring in data from elsewhere. The same again does nothing."""
    from batchscale import api
    from results.imports import KINDS

    long = kind in KINDS and "progress" in KINDS[kind].options
    found = api.take_in(
        kind,
        path,
        results=results,
        columns=pairs(map_ or ()),
        name=name,
        citation=citation,
        licence=licence,
        progress=ProgressLines(_so_far) if long else None,
    )
    for what, why in found.refused[:_SHOWN]:
        print(f"left out {what}: {why}", file=sys.stderr)
    if len(found.refused) > _SHOWN:
        print(f"left out {len(found.refused) - _SHOWN:,} more", file=sys.stderr)
    if found.ignored:
        print(f"{count(len(found.ignored), 'file', 'are')} none of it: not read", file=sys.stderr)
    what = f"{count(found.trials, 'trial')} of {count(found.studies, 'study')}"
    if found.measurements:
        what += f" with {count(found.measurements, 'measurement')}"
    if found.fresh:
        print(f"imported {what} into {found.results} as experiment {found.experiment}")
    else:
        print(f"{found.results} has these {what} already, as experiment {found.experiment}")


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """``NAME=THEIRS`` texts as a mapping of plain names.

    Raises:
        CommandError: a text that is none, or a name given twice.
    """
    from batchscale.output.errors import CommandError

    found: dict[str, str] = {}
    for text in texts:
        name, equals, theirs = (part.strip() for part in text.partition("="))
        if not (name and equals and theirs):
            raise CommandError(
                f"--map {text} is not NAME=THEIRS", hint="for example: --map batch_size=bs"
            )
        if name in found:
            raise CommandError(
                f"--map gives {name} twice: {found[name]} and {theirs}", hint="name it once"
            )
        found[name] = theirs
    return found
