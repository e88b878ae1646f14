"""``batchscale regimes``, ``techniques``, ``plot``, ``report`` and ``serve``: analyse results."""

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

from batchscale.cli.options import Fmt, Json, Out, assignments, option, output_format, with_query

if TYPE_CHECKING:
    from analysis.figure_data import Query

Under = Annotated[
    list[str] | None,
    option(
        "--under",
        "BUDGET",
        'What trials reached within a budget: "5000 steps", "10 epochs", "1e6 examples", '
        '"1e8 tokens". Repeat it for several budgets.',
    ),
]


@with_query()
def regimes(
    query: Query,
    definition: Annotated[
        str | None,
        option(
            "--definition",
            "NAME",
            "Add the critical batch size by another definition: zhang2024, mccandlish2018.",
        ),
    ] = None,
    form: Annotated[
        str,
        option(
            "--form",
            "convex|knee",
            "knee: the quantities of an assumed form, whose ends are extrapolated where they "
            "are not level.",
        ),
    ] = "convex",
    law: Annotated[
        str | None,
        option(
            "--law",
            "COLUMN",
            "Add a power law of the critical batch size in this column, over all curves: "
            "width, or target.",
        ),
    ] = None,
    crossover: Annotated[
        bool,
        typer.Option(
            "--crossover", help="Add the batch sizes at which the curves of each pair cross."
        ),
    ] = False,
    optimal_batch: Annotated[
        bool,
        typer.Option(
            "--optimal-batch",
            help="Instead: the batch size of least final loss at each budget, and its power law.",
        ),
    ] = False,
    under: Under = None,
    format: Fmt = "table",
    json: Json = False,
) -> None:
    """Locate the three regimes, with intervals.

    Perfect scaling, diminishing returns, maximal data parallelism.
    """
    from batchscale import answers
    from batchscale.output import optimal_batch_table, ranking_table, regime_table
    from batchscale.output.errors import CommandError
    from batchscale.output.progress import ProgressLines

    query = replace(query, definition=definition, under=answers.limits(under))
    others = {"--definition": definition, "--form": form != "convex", "--law": law}
    if optimal_batch:
        others |= {"--crossover": crossover}
        if wrong := [name for name, value in others.items() if value]:
            raise CommandError(
                f"--optimal-batch and {wrong[0]} exclude each other",
                hint=f"leave one out: {wrong[0]} is about the regimes at one loss",
            )
        optima = answers.optimal_batch(replace(query, read="final"), ProgressLines())
        print(optimal_batch_table.optimal_batch(optima, output_format(format, json)), end="")
        return
    if query.read == "final" and (query.target is None or answers.has_single_budget(query)):
        others |= {"--baseline": query.baseline}
        if wrong := [name for name, value in others.items() if value]:
            raise CommandError(
                f"{wrong[0]} is about the regimes at one loss, which --read final has of runs with "
                "several budgets and --target",
                hint=f"without {wrong[0]} it ranks the curves at each batch size",
            )
        ranked = answers.best_at_batch(query, ProgressLines())
        print(ranking_table.rankings(ranked, output_format(format, json)), end="")
        return
    curves = answers.regimes(
        query, law=law, crossover=crossover, form=form, progress=ProgressLines()
    )
    print(regime_table.regimes(curves, output_format(format, json)), end="")


@with_query()
def techniques(
    query: Query,
    correction: Annotated[
        str | None,
        option(
            "--correction",
            "dunnett|holm|fdr|none",
            "How p-values are corrected for the number of ratios in the table: by default "
            "dunnett where one factor is changed at a time, else holm.",
        ),
    ] = None,
    quantity: Annotated[
        list[str] | None,
        option(
            "--quantity",
            "NAME",
            "Compare this alone: critical_batch_size, perfect_scaling_until, min_steps or "
            "min_examples. Repeat it for several.",
        ),
    ] = None,
    pool: Annotated[
        bool,
        typer.Option(
            "--pool",
            help="Instead: the mean of each ratio over the workloads, and the interval in which "
            "that of another workload is expected.",
        ),
    ] = False,
    under: Under = None,
    format: Fmt = "table",
    json: Json = False,
) -> None:
    """Compare every technique and optimizer with the plain one.

    Ratios with intervals, and p-values corrected for how many are compared.
    """
    from analysis.techniques.pooled import pooled
    from batchscale import answers
    from batchscale.output import technique_table
    from batchscale.output.progress import ProgressLines

    table = answers.techniques(
        replace(query, under=answers.limits(under)),
        correction=correction,
        quantities=quantity,
        progress=ProgressLines(),
    )
    chosen = output_format(format, json)
    if pool:
        print(technique_table.pooled(pooled(table), chosen), end="")
    else:
        print(technique_table.techniques(table, chosen), end="")


@with_query()
def plot(
    figure: Annotated[
        str,
        typer.Argument(
            metavar="FIGURE", help="A name from batchscale list figures, or file.py:function."
        ),
    ],
    query: Query,
    under: Under = None,
    option: Annotated[
        list[str] | None, option("--option", "NAME=VALUE", "An option of this figure alone.")
    ] = None,
    width: Annotated[
        str | None,
        option(
            "--width",
            "WIDTH",
            "column (3.4 inches), two-columns (7), slide (16:9), or inches. "
            "Default: one column, or two where the figure needs them.",
        ),
    ] = None,
    style: Annotated[
        str | None,
        option(
            "--style",
            "FILE",
            "A matplotlib style sheet or its name; it overrides the default style.",
        ),
    ] = None,
    output: Out = None,
) -> None:
    """Draw a figure, and write its numbers to a CSV of the same name."""
    import matplotlib

    from analysis.figures.drawing.page import longer
    from batchscale import answers
    from batchscale.output.progress import ProgressLines, say

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
        say(f"note: {path} is {size}", file=sys.stderr)
    for file in written:
        say(f"wrote {file}")


@with_query()
def report(
    query: Query,
    title: Annotated[str | None, option("--title", "TEXT", "The page's heading.")] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE.html", help="Write here.")
    ] = "report.html",
) -> None:
    """Write one self-contained page: findings, interactive curves, tables."""
    from batchscale import answers
    from batchscale.output.progress import ProgressLines, say

    with _missing_glyphs_noted():
        path = answers.report(query, output, title=title, progress=ProgressLines())
    say(f"wrote {path}")


@with_query(sources=False)
def serve(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="RESULTS",
            help="A results folder or URI; it need not exist yet. Default: the default results "
            "folder.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Default: this machine alone; 0.0.0.0: every machine that reaches this one.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", help="0: any free port. Default: the first free one from 8080 on."
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    *,
    query: Query,
) -> None:
    """Serve the report; it follows a running sweep. It only reads: stop it at any time.

    Ctrl-C stops it.
    """
    from batchscale.live.service import LiveReport
    from results.storage.location import default_results
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
    """Open a page in the default browser."""
    import webbrowser

    if not webbrowser.open(url):
        _say(f"no browser was found: open {url}")


def end_process() -> None:
    """End the process at once: a computation still runs whose result is not needed."""
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
            f"note: the font has no {' '.join(missing)}; set another in matplotlib's font.family, "
            "in a matplotlibrc or a style sheet"
        )
