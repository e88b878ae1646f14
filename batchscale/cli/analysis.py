"""``batchscale regimes``, ``plot``, ``report`` and ``serve``: what results say."""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.options import Fmt, Json, Out, assignments, output_format, with_query

if TYPE_CHECKING:
    from analysis.figure_data import Query


@with_query()
def regimes(
    query: Query,
    definition: Annotated[
        str | None,
        typer.Option(
            "--definition",
            metavar="NAME",
            help="Also the critical batch size as others define it: zhang2024 or mccandlish2018.",
        ),
    ] = None,
    law: Annotated[
        str | None,
        typer.Option(
            "--law",
            metavar="COLUMN",
            help="Also the critical batch size as a power of this column, across curves: width, or "
            "target.",
        ),
    ] = None,
    format: Fmt = "table",
    json: Json = False,
) -> None:
    """Locate the three regimes, with intervals.

    Perfect scaling, diminishing returns, maximal data parallelism.
    """
    from batchscale import answers
    from batchscale.output import regime_table
    from batchscale.output.progress import ProgressLines

    query = replace(query, definition=definition)
    curves = answers.regimes(query, law=law, progress=ProgressLines())
    print(regime_table.regimes(curves, output_format(format, json)), end="")


@with_query()
def plot(
    figure: Annotated[
        str,
        typer.Argument(
            metavar="FIGURE",
            help="A name that batchscale list figures prints, or file.py:function.",
        ),
    ],
    query: Query,
    under: Annotated[
        list[str] | None,
        typer.Option(
            "--under",
            metavar="BUDGET",
            help='What trials had within a budget: "5000 steps", "10 epochs" or "1e6 examples". '
            "Give it once a budget.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="NAME=VALUE", help="An option that this figure has and others lack."
        ),
    ] = None,
    width: Annotated[
        str | None,
        typer.Option(
            "--width",
            metavar="WIDTH",
            help="column (3.4 inches), two-columns (7), slide (10, larger type), or inches. Else "
            "one column, or two where the figure needs them.",
        ),
    ] = None,
    style: Annotated[
        str | None,
        typer.Option(
            "--style",
            metavar="FILE",
            help="A matplotlib style sheet, or the name of one: what it sets wins.",
        ),
    ] = None,
    output: Out = None,
) -> None:
    """Draw a figure, and write its numbers beside it."""
    import matplotlib

    from analysis.figures.drawing.page import longer
    from batchscale import answers
    from batchscale.output.progress import ProgressLines

    matplotlib.use("agg")
    kind = answers.figure_kind(figure)
    path = output or f"{kind.name}.pdf"
    with _missing_glyphs_noted():
        axes, written = answers.plot(
            kind,
            replace(query, under=answers.limits(under)),
            width=width,
            style=style,
            output=path,
            options=assignments(option or [], "--option"),
            progress=ProgressLines(),
        )
    whole = axes.get_figure(root=True)
    if whole is not None and (size := longer(whole)):
        print(f"note: {path} is {size}", file=sys.stderr)
    for file in written:
        print(f"wrote {file}")


@with_query()
def report(
    query: Query,
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="The page's heading.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE.html", help="Write here.")
    ] = "report.html",
) -> None:
    """Write one self-contained page: findings, interactive curves, tables."""
    from batchscale import answers
    from batchscale.output.progress import ProgressLines

    with _missing_glyphs_noted():
        path = answers.report(query, output, title=title, progress=ProgressLines())
    print(f"wrote {path}")


@with_query(sources=False)
def serve(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="RESULTS",
            help="A results folder or URI, there already or not. Else the default results folder.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="This machine alone; 0.0.0.0: whoever reaches this machine."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="0: any. Else the first that is free from 8080 on."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    *,
    query: Query,
) -> None:
    """Serve the report, live over a sweep that runs. It only reads: begin and end it at any time.

    Ctrl-C ends it.
    """
    from batchscale.live.service import LiveReport
    from batchscale.run import default_results
    from results.storage.masking import masked

    results = source or default_results()
    query = replace(query, sources=[results])
    try:
        with LiveReport(query, host=host, port=port, say=_say) as service:
            url = service.server.url
            print(f"serving {masked(results)} at {url} (Ctrl-C ends it)", flush=True)
            if open_:
                browse(url)
            service.forever()
    except KeyboardInterrupt:
        from batchscale.live.watch import NAME

        if any(thread.name == NAME for thread in threading.enumerate()):
            end_process()
        raise


def browse(url: str) -> None:
    """Open a page in whatever browser there is."""
    import webbrowser

    if not webbrowser.open(url):
        _say(f"no browser was found: open {url}")


def end_process() -> None:
    """End the process at once: a computation still runs, which nobody needs any more."""
    from batchscale.output.errors import INTERRUPTED

    sys.stdout.flush()
    os._exit(INTERRUPTED)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _missing_glyphs_noted() -> Iterator[None]:
    """Print one note of the characters that the font lacks, not a warning for each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message="Glyph ")
        yield
    missing: dict[str, None] = {}
    for warning in caught:
        if match := re.match(r"Glyph (\d+) ", str(warning.message)):
            missing[chr(int(match[1]))] = None
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    if missing:
        _say(
            f"note: the font has no {' '.join(missing)}; matplotlib's font.family names another, "
            "in a matplotlibrc or a style sheet"
        )
