"""Figures by name, each in a file of its own that is imported when it is drawn.

A figure's file has ``draw(shown, *, ax=None) -> Axes`` and ``numbers(shown) -> DataFrame`` (what
it shows, for the CSV beside it), both of one ``analysis.figure_data.Material``.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.fit.regimes import Regimes
from results.errors import ResultsError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FIGURES = {
    "steps": ("steps_to_target", "steps to target against batch size, with the three regimes"),
    "forest": ("forest", "critical batch sizes and regimes of all curves, with intervals"),
    "tradeoff": ("tradeoff", "steps against examples to target: what a larger batch costs"),
    "learning_rate": ("best_learning_rate", "the best effective learning rate and the two rules"),
    "budget": ("expected_best", "the expected best against the number of trials: was N enough?"),
    "rates": ("trial_rates", "shares of trials that reached the target, did not, or diverged"),
    "landscape": ("landscape", "learning rate against steps to target, the best marked"),
    "training": ("training", "training curves of every trial, with the best and its bracket"),
    "search": ("search_scatter", "learning rate and momentum of every trial, and its fate"),
    "shallue-fig1": ("paper.fig1", "Shallue et al. 2019: steps to target, a panel a workload"),
    "shallue-fig2": ("paper.fig2", "… the same for several goals a workload"),
    "shallue-fig3": ("paper.fig3", "… models compared: families, widths, depths"),
    "shallue-fig4": ("paper.fig4", "… optimizers compared"),
    "shallue-fig5": ("paper.fig5", "… data sets compared"),
    "shallue-fig6": ("paper.fig6", "… subsets of one data set"),
    "shallue-fig7": ("paper.fig7", "… label smoothing: best metric, and steps to target"),
    "shallue-fig8": ("paper.fig8", "… best effective learning rate, and the two rules"),
    "shallue-fig9": ("paper.fig9", "… learning rate and momentum under budgets: --under"),
    "shallue-fig10": ("paper.fig10", "… learning rate and momentum across model sizes"),
    "shallue-fig11": ("paper.fig11", "… best metric under step and epoch budgets: --under"),
    "shallue-best-learning-rate": ("paper.best_rate", "… best learning rate by batch size"),
    "shallue-best-momentum": ("paper.best_momentum", "… best momentum by batch size"),
}

FORMATS = (".pdf", ".png", ".svg")


def names() -> dict[str, str]:
    """Each figure's name, and a line on it."""
    return {name: line for name, (_, line) in _FIGURES.items()}


def draw(
    name: str,
    shown: FigureData | Sequence[Curve],
    found: Sequence[Regimes | None] | None = None,
    *,
    ax: Axes | None = None,
    tolerance: float = 0.2,
    width: str | float | None = None,
    style: str | Path | None = None,
) -> Axes:
    """Draw a figure by name; its ``Axes`` (the first one where it has several).

    Args:
        shown: what it is drawn from; or curves alone (from ``analysis.curves``), which is enough
            for a figure that asks neither trials nor measurements.
        found: the regimes of such curves, None for a curve that has none; computed if not given.
        ax: axes to draw on (the main panel alone); else a figure of its own.
        tolerance: of the regimes, where they are computed here.
        width: ``column`` (3.4 inches), ``two-columns`` (7), ``slide`` (10, with larger type) or
            inches; one column, or two where the figure needs them, unless given.
        style: a matplotlib style sheet's file or name, which wins over ours
            (``analysis/figures/batchscale.mplstyle``), as do the settings of the caller's own.

    Raises:
        ResultsError: no such figure, width or style, nothing to draw, several panels on one
            ``ax``, or a width beside it.
    """
    from analysis.figures.drawing.page import context, on, page, remember
    from analysis.figures.drawing.text_fit import fit

    module = _module(name)
    if ax is not None and width is not None:
        raise ResultsError(
            "a width is of a figure of its own, and ax brings another", hint="leave out one of them"
        )
    with on(page(width, style)), context():
        drawn: Axes = module.draw(_material(shown, found, tolerance), ax=ax)
        figure = drawn.get_figure(root=True)
        if ax is None and figure is not None:
            fit(figure)
            remember(figure)
    return drawn


def numbers(
    name: str,
    shown: FigureData | Sequence[Curve],
    found: Sequence[Regimes | None] | None = None,
    *,
    tolerance: float = 0.2,
) -> pd.DataFrame:
    """What the figure shows, a row a point."""
    frame: pd.DataFrame = _module(name).numbers(_material(shown, found, tolerance))
    return frame


def save(drawn: Axes | Figure, path: str | Path, frame: pd.DataFrame | None = None) -> list[Path]:
    """Write a figure as PDF (embedded TrueType), PNG (300 dots an inch) or SVG (letters as
    outlines), by ``path``'s suffix (PDF without one), and ``frame`` as CSV beside it; the files
    written. It is saved in the style that it was drawn in.

    Raises:
        ResultsError: another suffix, or a place that cannot be written to.
    """
    from matplotlib.figure import Figure

    from analysis.figures.drawing.page import context

    path = Path(path)
    path = path if path.suffix else path.with_suffix(".pdf")
    if path.suffix.lower() not in FORMATS:
        raise ResultsError(
            f"cannot write a figure as {path.suffix}", hint=f"use one of {', '.join(FORMATS)}"
        )
    figure = drawn if isinstance(drawn, Figure) else drawn.get_figure(root=True)
    assert figure is not None
    written = [path]
    # Without dates the same figure is the same file.
    stamp = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix.lower())
    try:
        with context(figure):
            figure.savefig(path, metadata=stamp)
        if frame is not None:
            beside = path.with_suffix(".csv")
            frame.to_csv(beside, index=False)
            written.append(beside)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror or error}") from error
    return written


def _module(name: str) -> Any:
    if name not in _FIGURES:
        near = get_close_matches(name, _FIGURES, n=1)
        raise ResultsError(
            f"no figure is called {name!r}",
            hint=f"did you mean {near[0]}?" if near else f"figures: {', '.join(_FIGURES)}",
        )
    return import_module(f"analysis.figures.{_FIGURES[name][0]}")


def _material(
    shown: FigureData | Sequence[Curve], found: Sequence[Regimes | None] | None, tolerance: float
) -> FigureData:
    if isinstance(shown, FigureData):
        return shown
    if not shown:
        raise ResultsError("no curve to draw")
    return FigureData.of(shown, found, tolerance=tolerance)
