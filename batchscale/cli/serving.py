"""``batchscale serve RESULTS``: the report of a sweep that one can watch."""

from __future__ import annotations

import os
import sys
import threading
from typing import Annotated

import typer

from batchscale.cli.options import (
    Baseline,
    By,
    Estimator,
    SearchOption,
    TargetOption,
    Tolerance,
    Where,
    columns,
)


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
    target: TargetOption = None,
    where: Where = None,
    by: By = None,
    baseline: Baseline = None,
    tolerance: Tolerance = 0.2,
    estimator: Estimator = None,
    search: SearchOption = "present",
) -> None:
    """Serve the report, live over a sweep that runs. It only reads: begin and end it at any time.

    Ctrl-C ends it.
    """
    from batchscale import outward
    from batchscale.api import default_results
    from results.storage.masking import masked

    shown = masked(source or default_results())

    def ready(url: str) -> None:
        print(f"serving {shown} at {url} (Ctrl-C ends it)", flush=True)
        if open_:
            browse(url)

    try:
        outward.serve(
            source,
            host=host,
            port=port,
            target=target,
            where=where,
            by=columns(by),
            baseline=baseline,
            tolerance=tolerance,
            estimator=estimator,
            search=search,
            on_ready=ready,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
    except KeyboardInterrupt:
        from batchscale.live.watch import NAME

        if any(thread.name == NAME for thread in threading.enumerate()):
            leave()
        raise


def browse(url: str) -> None:
    """Open a page in whatever browser there is."""
    import webbrowser

    if not webbrowser.open(url):
        print(f"no browser was found: open {url}", file=sys.stderr, flush=True)


def leave() -> None:
    """End the process: what is being computed is worth nothing now, and nothing else ends it."""
    from batchscale.output.errors import INTERRUPTED

    sys.stdout.flush()
    os._exit(INTERRUPTED)
