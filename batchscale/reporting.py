"""The command ``batchscale report``."""

from __future__ import annotations

from typing import Annotated

import typer

from batchscale.options import (
    Baseline,
    By,
    Estimator,
    SearchOption,
    Sources,
    TargetOption,
    Tolerance,
    Where,
    columns,
)
from batchscale.telling import told


@told()
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
