"""``batchscale query``, ``fsck``, ``compact`` and ``list``: results, and names of each kind."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from batchscale.cli.options import Fmt, Folder, Json, Out, Source, output_format
from batchscale.output.progress import say
from batchscale.output.tables import frame_text, render, write_frame


def query(
    sql: Annotated[
        str,
        typer.Argument(
            metavar="SELECT",
            help="Of the tables studies, trials, measurements, sources; and of best, which has the "
            "best counted trial of each batch size, as regimes takes it.",
        ),
    ],
    source: Source = None,
    output: Out = None,
    format: Fmt = "table",
    json: Json = False,
) -> None:
    """Query the results in SQL (DuckDB). It reads these tables alone, and writes nothing."""
    from batchscale import api

    frame = api.query(sql, source)
    if output is not None:
        say(f"wrote {write_frame(frame, output, output_format(format, json))}")
    else:
        print(frame_text(frame, output_format(format, json)), end="")


def fsck(source: Folder = None, format: Fmt = "table", json: Json = False) -> int:
    """Check a results folder: files, mark, counts, ids. A line for each defect, with what to do."""
    from batchscale import upkeep
    from results.counts import count

    checked = upkeep.fsck(source)
    form = output_format(format, json)
    if form == "table":
        for defect in checked.defects:
            print(f"{defect.what}: {defect.do}")
        if not checked.defects:
            print(f"{count(checked.files, 'file')} of rows, no defect")
    else:
        rows = [{"what": each.what, "do": each.do} for each in checked.defects]
        print(render(rows, form, columns=("what", "do")), end="")
    for note in checked.unchecked:
        print(f"note: {note}", file=sys.stderr)
    return 1 if checked.defects else 0


def compact(results: Folder = None) -> None:
    """Merge small files and drop superseded rows, also during a sweep."""
    from batchscale import upkeep
    from results.counts import count

    done = upkeep.compact(results)
    print(
        f"{count(done.after, 'file')} of rows, {done.before} before. Files that were replaced stay "
        "for ten minutes, for programs that have listed them; the next compact deletes them."
        if done.after < done.before
        else f"{count(done.after, 'file')} of rows: nothing to merge"
    )


def listing(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="workloads, texts, optimizers, schedules, techniques, layouts, figures, "
            "experiments, executors, imports or exports. Default: the kinds.",
        ),
    ] = None,
    format: Fmt = "table",
    json: Json = False,
) -> None:
    """List the names of one kind."""
    from batchscale import api
    from batchscale.names import KINDS

    if kind is None:
        print(render([{"kind": each} for each in KINDS], output_format(format, json)), end="")
        return
    rows = [{"name": name, "what": what} for name, what in api.listing(kind).items()]
    print(render(rows, output_format(format, json), columns=("name", "what")), end="")
