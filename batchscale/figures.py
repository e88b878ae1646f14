"""Figures and the report: the functions behind ``batchscale plot`` and ``batchscale report``.

The others are in `api`.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from batchscale.run import Run


def plot(
    figure: str,
    *sources: str | Path | Run,
    target: str | None = None,
    where: str | None = None,
    by: Sequence[str] | None = None,
    baseline: str | None = None,
    tolerance: float = 0.2,
    estimator: str | None = None,
    search: str = "present",
    width: str | float | None = None,
    style: str | Path | None = None,
    under: Sequence[str] | None = None,
    output: str | Path | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a figure; where ``output`` is given, also write it, with its numbers beside it.

    Args:
        figure: ``list("figures")``.
        sources: as of ``regimes``, likewise ``target`` … ``search``.
        under: budgets, ``["5000 steps", "10 epochs"]``: what trials had within them.
        width: ``column`` (3.4 inches), ``two-columns`` (7), ``slide`` (10, with larger type) or
            inches; else one column, or two where the figure needs them.
        style: a matplotlib style sheet's file or name: what it sets wins over our own, as
            matplotlib's settings and ``plt.style.context`` around this call do.
        output: a file to write; else none.
        ax: axes to draw on, as of a grid of one's own; else a new figure.
    """
    from batchscale.curves import figure as drawn

    return drawn(
        figure,
        sources,
        target,
        where,
        by,
        baseline,
        tolerance,
        estimator,
        search,
        output,
        ax,
        under,
        width,
        style,
    )[0]


def draw(
    figure: str,
    *sources: str | Path | Run,
    target: str | None = None,
    where: str | None = None,
    by: Sequence[str] | None = None,
    baseline: str | None = None,
    tolerance: float = 0.2,
    estimator: str | None = None,
    search: str = "present",
    width: str | float | None = None,
    style: str | Path | None = None,
    under: Sequence[str] | None = None,
    output: str | Path | None = None,
) -> list[Path]:
    """Draw a figure into ``output``, else a PDF of its name, its numbers beside it; the paths."""
    import matplotlib

    from analysis.figures.drawing.page import longer
    from batchscale.curves import figure as drawn

    matplotlib.use("agg")
    path = output or f"{figure}.pdf"
    with missing_signs_noted():
        axes, written = drawn(
            figure,
            sources,
            target,
            where,
            by,
            baseline,
            tolerance,
            estimator,
            search,
            path,
            None,
            under,
            width,
            style,
        )
    whole = axes.get_figure(root=True)
    if whole is not None and (said := longer(whole)):
        print(f"note: {path} is {said}", file=sys.stderr)
    return written


@contextmanager
def missing_signs_noted() -> Iterator[None]:
    """Signs that the font lacks are one note on stderr, not a warning of matplotlib's for each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message="Glyph ")
        yield
    signs: dict[str, None] = {}
    for each in caught:
        if match := re.match(r"Glyph (\d+) ", str(each.message)):
            signs[chr(int(match[1]))] = None
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if signs:
        print(
            f"note: the font has no {' '.join(signs)}; matplotlib's font.family names another, in "
            "a matplotlibrc or a style sheet",
            file=sys.stderr,
        )


def report(
    *sources: str | Path | Run,
    target: str | None = None,
    where: str | None = None,
    by: Sequence[str] | None = None,
    baseline: str | None = None,
    tolerance: float = 0.2,
    estimator: str | None = None,
    search: str = "present",
    title: str | None = None,
    output: str | Path = "report.html",
) -> Path:
    """Write one self-contained HTML page: findings, interactive curves, tables, sources.

    Args:
        title: its heading, instead of one made of the workloads' names.
        output: the file; its folder is made.

    The others are those of ``regimes``. Without a ``baseline`` curves are held against sgd, or
    else the first of their workload.

    Raises:
        ResultsError: a source that is none, no curve, or a place that cannot be written to.
    """
    from batchscale.curves import report

    return report(sources, target, where, by, baseline, tolerance, estimator, search, title, output)
