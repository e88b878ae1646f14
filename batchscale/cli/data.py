"""``batchscale query`` and ``batchscale list``: recorded results, and names of each kind."""

from __future__ import annotations

from typing import Annotated

import typer

from batchscale.cli.options import Fmt, Json, Out, Source, output_format
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
        print(f"wrote {write_frame(frame, output, output_format(format, json))}")
    else:
        print(frame_text(frame, output_format(format, json)), end="")


def listing(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="workloads, texts, optimizers, schedules, techniques, layouts, figures, "
            "experiments, executors, imports or exports.",
        ),
    ],
    format: Fmt = "table",
    json: Json = False,
) -> None:
    """List the names of one kind."""
    from batchscale import api

    rows = [{"name": name, "what": what} for name, what in api.listing(kind).items()]
    print(render(rows, output_format(format, json), columns=("name", "what")), end="")
