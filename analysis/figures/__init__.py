"""Figures by name, each in a file of its own that is imported when it is drawn.

``steps`` is steps.py in this folder, ``training`` is over_training/training.py, ``shallue-fig1`` is
shallue/fig1.py: a new file is a new figure, described by the first sentence of its docstring. The
file has

- ``draw(data, *, page, ...) -> Axes``: draws a `analysis.figure_data.FigureData` on the panels of a
  ``page`` (`drawing.page.Page`), which may be the caller's own axes. A user's figure may take those
  as ``ax=None``, or neither. Further keyword arguments are the figure's options.
- ``numbers(data, ...) -> DataFrame``: the numbers in the figure, for the CSV beside it. It takes
  the same options. A user's figure may leave it out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.curves.curve import Curve
from analysis.figure_data import FigureData
from analysis.fit.regimes import Regimes
from results.errors import ResultsError, nearest
from results.extensions import description
from results.storage.cells import cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from analysis.figures.drawing.page import Page

FORMATS = (".pdf", ".png", ".svg")
_FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class FigureKind:
    """A figure that can be drawn: its name and the functions of its file."""

    name: str
    draw: Callable[..., Any]
    numbers: Callable[..., pd.DataFrame] | None = None

    @property
    def packaged(self) -> bool:
        """Whether it is not a user's."""
        return self.draw.__module__.startswith("analysis.")

    @cached_property
    def options(self) -> list[str]:
        """The names of its options: the keyword arguments of ``draw`` except ``ax`` and
        ``page``."""
        return [name for name in self._arguments if name not in ("ax", "page")]

    @cached_property
    def _arguments(self) -> list[str]:
        _, *arguments = inspect.signature(self.draw).parameters
        return arguments

    def check(self, options: Mapping[str, object]) -> None:
        """Raise a ResultsError for an option that this figure does not have."""
        for name in options:
            if name not in self.options:
                raise ResultsError(
                    f"figure {self.name} has no option {name!r}",
                    hint=f"its options: {', '.join(self.options)}"
                    if self.options
                    else "it has no options of its own",
                )

    def draw_on(
        self, data: FigureData, ax: Axes | None, page: Page, options: Mapping[str, object]
    ) -> Axes:
        """Draw it on a page; its axes, the first of them where it has several."""
        if ax is not None and not {"ax", "page"} & {*self._arguments}:
            raise ResultsError(
                f"figure {self.name} cannot be drawn on given axes",
                hint="leave out ax, or add the keyword argument ax=None to its function",
            )
        given = {"ax": ax, "page": page}
        drawn = self.draw(
            data, **{name: given[name] for name in given if name in self._arguments}, **options
        )
        axes = getattr(drawn, "axes", None)
        if isinstance(axes, list) and axes:  # a matplotlib Figure
            drawn = axes[0]
        if not hasattr(drawn, "get_figure"):
            raise ResultsError(
                f"figure {self.name} returned {type(drawn).__name__}",
                hint="its function must return the matplotlib Axes that it has drawn on",
            )
        axes_drawn_on: Axes = drawn
        return axes_drawn_on


def files() -> dict[str, Path]:
    """The file of each packaged figure, by the figure's name."""
    paths = [*_FOLDER.glob("[!_]*.py"), *_FOLDER.glob("over_training/[!_]*.py")]
    general = {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}
    paper = sorted(
        _FOLDER.glob("shallue/[!_]*.py"),
        key=lambda path: (path.stem.rstrip("0123456789"), len(path.stem), path.stem),
    )
    return general | {f"shallue-{path.stem.replace('_', '-')}": path for path in paper}


def names() -> dict[str, str]:
    """Each packaged figure's name, and its description."""
    return {name: description(path) for name, path in files().items()}


def get(name: str) -> FigureKind:
    """A packaged figure.

    Raises:
        ResultsError: there is no such figure.
    """
    packaged = files()
    if name not in packaged and name.replace("-", "_") in packaged:
        name = name.replace("-", "_")  # as a command writes words: optimal-batch
    if name not in packaged:
        raise ResultsError(
            f"no figure is called {name!r}",
            hint=nearest(name, packaged, f"figures: {', '.join(packaged)}"),
        )
    path = packaged[name].relative_to(_FOLDER).with_suffix("")
    module = import_module(f"{__name__}.{'.'.join(path.parts)}")
    return FigureKind(name=name, draw=module.draw, numbers=module.numbers)


def draw(
    figure: str | FigureKind,
    data: FigureData | Sequence[Curve],
    regimes: Sequence[Regimes | None] | None = None,
    *,
    ax: Axes | None = None,
    tolerance: float = 0.2,
    width: str | float | None = None,
    style: str | Path | None = None,
    options: Mapping[str, object] = MappingProxyType({}),
) -> Axes:
    """Draw a figure; its ``Axes`` (the first one where it has several).

    Args:
        figure: its name, or a `FigureKind`.
        data: the data of the figure; or curves alone (from ``analysis.curves``), which is enough
            for a figure that needs neither trials nor measurements.
        regimes: the regimes of such curves, None for a curve that has none; computed if not given.
        ax: axes to draw on (the main panel alone); else a new figure.
        tolerance: of the regimes, where they are computed here.
        width: ``column`` (3.4 inches), ``two-columns`` (7), ``slide`` (16:9) or
            inches; one column, or two where the figure needs them, unless given.
        style: a matplotlib style content's file or name, which overrides the packaged one
            (``analysis/figures/drawing/paper.mplstyle``), as the caller's settings do.
        options: the figure's own.

    Raises:
        ResultsError: no such figure, option, width or style, nothing to draw, several panels on one
            ``ax``, or a width together with ``ax``.
    """
    from analysis.figures.drawing.page import Page, literal_text, remember_style, take_literally

    kind = get(figure) if isinstance(figure, str) else figure
    kind.check(options)
    if ax is not None and width is not None:
        raise ResultsError(
            "width sets the size of a new figure, and ax belongs to a figure that exists",
            hint="leave out one of them",
        )
    page = Page.of(width, style, ax=ax)
    with page.context(), literal_text() if kind.packaged else nullcontext():
        if ax is not None and kind.packaged:
            take_literally(ax, every=True)
        drawn = kind.draw_on(_data(data, regimes, tolerance), ax, page, options)
        whole = drawn.get_figure(root=True)
        if ax is None and whole is not None:
            page.finish()
            remember_style(whole)
        if kind.packaged and whole is not None:
            take_literally(whole if ax is None else drawn)
    return drawn


def numbers(
    figure: str | FigureKind,
    data: FigureData | Sequence[Curve],
    regimes: Sequence[Regimes | None] | None = None,
    *,
    tolerance: float = 0.2,
    options: Mapping[str, object] = MappingProxyType({}),
) -> pd.DataFrame:
    """The numbers in the figure, a row a point.

    Raises:
        ResultsError: as ``draw`` does, or a user's figure has no function ``numbers``.
    """
    kind = get(figure) if isinstance(figure, str) else figure
    kind.check(options)
    if kind.numbers is None:
        raise ResultsError(f"figure {kind.name} has no function that returns its numbers")
    return kind.numbers(_data(data, regimes, tolerance), **options)


def save(drawn: Axes | Figure, path: str | Path, frame: pd.DataFrame | None = None) -> list[Path]:
    """Write a figure as PDF (embedded TrueType), PNG (300 dots an inch) or SVG (letters as
    outlines), by ``path``'s suffix (PDF without one), and ``frame`` as CSV beside it; the files
    written. It is saved in the style that it was drawn in.

    Raises:
        ResultsError: another suffix, or a place that cannot be written to.
    """
    from matplotlib.figure import Figure

    from analysis.figures.drawing.page import saving

    path = Path(path)
    path = path if path.suffix else path.with_suffix(".pdf")
    if path.suffix.lower() not in FORMATS:
        raise ResultsError(
            f"cannot write a figure as {path.suffix}", hint=f"use one of {', '.join(FORMATS)}"
        )
    figure = drawn if isinstance(drawn, Figure) else drawn.get_figure(root=True)
    assert figure is not None
    written = [path]
    # Without dates the same figure gives the same file.
    stamp = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix.lower())
    try:
        with saving(figure):
            figure.savefig(path, metadata=stamp)
        if frame is not None:
            table = path.with_suffix(".csv")
            cells(frame).to_csv(table, index=False)
            written.append(table)
    except OSError as error:
        raise ResultsError(f"cannot write {path}: {error.strerror or error}") from error
    return written


def _data(
    data: FigureData | Sequence[Curve], regimes: Sequence[Regimes | None] | None, tolerance: float
) -> FigureData:
    if isinstance(data, FigureData):
        return data
    if not data:
        raise ResultsError("no curve to draw")
    return FigureData.of(data, regimes, tolerance=tolerance)
