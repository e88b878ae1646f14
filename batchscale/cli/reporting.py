"""The commands that draw: ``batchscale plot`` and ``batchscale report``."""

from __future__ import annotations

from typing import Annotated

import typer

from batchscale.cli.options import (
    Baseline,
    By,
    Estimator,
    Out,
    SearchOption,
    Sources,
    Style,
    TargetOption,
    Tolerance,
    Under,
    Where,
    Width,
    columns,
)


def plot(
    figure: Annotated[
        str, typer.Argument(metavar="FIGURE", help="The figure: batchscale list figures.")
    ],
    sources: Sources,
    target: TargetOption = None,
    where: Where = None,
    by: By = None,
    baseline: Baseline = None,
    tolerance: Tolerance = 0.2,
    estimator: Estimator = None,
    search: SearchOption = "present",
    under: Under = None,
    width: Width = None,
    style: Style = None,
    output: Out = None,
) -> None:
    """Draw a figure, and write its numbers beside it."""
    from batchscale import figures

    paths = figures.draw(
        figure,
        *sources,
        target=target,
        where=where,
        by=columns(by),
        baseline=baseline,
        tolerance=tolerance,
        estimator=estimator,
        search=search,
        under=under,
        width=width,
        style=style,
        output=output,
    )
    for path in paths:
        print(f"wrote {path}")


def report(
    sources: Sources,
    target: TargetOption = None,
    where: Where = None,
    by: By = None,
    baseline: Baseline = None,
    tolerance: Tolerance = 0.2,
    estimator: Estimator = None,
    search: SearchOption = "present",
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="The page's heading.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE.html", help="Write here.")
    ] = "report.html",
) -> None:
    """Write one self-contained page: findings, interactive curves, tables."""
    from batchscale import figures

    with figures.missing_signs_noted():
        path = figures.report(
            *sources,
            target=target,
            where=where,
            by=columns(by),
            baseline=baseline,
            tolerance=tolerance,
            estimator=estimator,
            search=search,
            title=title,
            output=output,
        )
    print(f"wrote {path}")
