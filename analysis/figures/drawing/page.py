"""The page that a figure is drawn on: its width and style, its panels, their titles, one legend.

Panels are laid out by matplotlib's constrained layout, the legend is outside of them, and the page
is then made as tall as the panels need beside both. A slide is the same figure at a smaller width
and a higher resolution, 16:9.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib import style as styles
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis.figures.drawing.colours import faint
from analysis.figures.drawing.text_fit import distinct, fitted, inches_of, no_snake_case, within
from results.counts import count as counted
from results.errors import ResultsError, nearest

_RC: Any = mpl.rcParams
_DEFAULT: Any = mpl.rcParamsDefault

COLUMN, TWO_COLUMNS, SLIDE = 3.4, 7.0, 5.6
"""Inches of a column of print, of two, and of a slide: there 8 points are 14 of 10 inches."""
_WIDTHS = {"column": COLUMN, "two-columns": TWO_COLUMNS, "slide": SLIDE}
_LEAST, _MOST = 2.5, 24.0
_PAGE_HEIGHT = 9.7
"""Inches of A4 between its margins."""
_MAX_HEIGHT = 200.0
"""Inches: 14,400 points, the limit of PDF; a PNG of 300 dots an inch has one at 218."""
_AXIS = 0.55
"""Inches of the names and numbers beside a panel, about."""
_HANDLE = 0.34
"""Inches of the mark of a legend's entry, and of the space to the next column."""
_NOT_STYLE = ("backend", "backend_fallback", "interactive", "toolbar")
_SAVED_STYLE = "_batchscale_style"
"""The attribute of a figure that holds the settings it was drawn with."""


@dataclass(kw_only=True)
class Page:
    """``inches`` wide, None for the width that a figure needs; ``style`` overrides our style
    sheets. With ``ax``, the caller's own axes, there is room for one panel."""

    inches: float | None = None
    is_slide: bool = False
    style: Mapping[str, Any] = field(default_factory=dict)
    ax: Axes | None = None
    panel: float = COLUMN - _AXIS
    """Inches of a panel's width, about."""
    _heights: list[tuple[Axes, float]] = field(default_factory=list)
    """Of each row of panels one, with the inches that it is to be tall."""

    @classmethod
    def of(
        cls, width: str | float | None = None, style: str | Path | None = None, **given: Any
    ) -> Page:
        """The page of a ``width`` (``column``, ``two-columns``, ``slide`` or inches) and a
        ``style``: a style sheet's file, or the name of one of matplotlib's.

        Raises:
            ResultsError: no such width or style, or a setting that matplotlib does not know.
        """
        settings = {} if style is None else _read(style)
        given["style"] = {n: each for n, each in settings.items() if n not in _NOT_STYLE}
        if width is None or width in _WIDTHS:
            inches = None if width is None else _WIDTHS[str(width)]
            return cls(inches=inches, is_slide=width == "slide", **given)
        try:
            inches = float(width)
        except ValueError:
            raise ResultsError(
                f"no width is called {width!r}", hint="column, two-columns, slide, or inches: 5.5"
            ) from None
        if not _LEAST <= inches <= _MOST:
            raise ResultsError(
                f"a figure is not {inches:g} inches wide", hint=f"from {_LEAST:g} to {_MOST:g}"
            )
        return cls(inches=inches, **given)

    @contextmanager
    def context(self) -> Iterator[None]:
        """Draw in the style of this page; the user's own settings come back after.

        Our style sheets give those settings that the user has not set, which are matplotlib's own
        defaults or the style sheets'. The style of this page overrides both.
        """
        paper = style_sheet()
        ours = {**paper, **style_sheet("slide")} if self.is_slide else paper
        free = {
            name: value
            for name, value in ours.items()
            if _RC[name] in (_DEFAULT[name], value, paper.get(name))
        }
        settings: Any = {**free, **self.style}
        with mpl.rc_context(settings):
            yield

    def panels(
        self,
        blocks: Sequence[int],
        noun: str,
        width: float,
        *heights: float,
        across: int | None = None,
        **shared: Any,
    ) -> list[list[Axes]]:
        """Panels of a new figure, or the caller's axes for a single one: of each of ``heights`` a
        list, in a panel one beneath the other.

        Args:
            blocks: how many panels begin a row together.
            noun: what a panel is, for the error of several panels and one ``ax``.
            width: inches that a panel needs.
            heights: inches of a panel, of each of its axes.
            across: panels in a row where no width is given, if not as many as two columns hold.
            shared: ``sharex``, ``sharey`` of ``plt.subplots``.

        Raises:
            ResultsError: several panels on one ``ax``, or a page taller than a PDF may be.
        """
        count = sum(blocks)
        if self.ax is not None:
            if count > 1:
                example = ' "batch_size = 64"' if noun == "batch size" else ""
                raise ResultsError(
                    f"{counted(count, noun, 'do')} not fit on one pair of axes in this figure",
                    hint=f"choose one with --where{example}, or leave ax out",
                )
            figure = _figure_of(self.ax)
            self.panel = float(self.ax.get_position().width * figure.get_size_inches()[0])
            return [[self.ax]]
        inches = self.inches or (COLUMN if min(count, across or count) == 1 else TWO_COLUMNS)
        most = max(1, int(inches / width + 0.01))
        columns = most if self.inches else min(most, across or most)
        if self.is_slide:  # as few columns as are not taller than wide
            every = range(columns, max(count, columns) + 1)
            fit = (n for n in every if _rows(blocks, n) * sum(heights) < n * width * 9 / 16)
            columns = next(fit, columns)
            inches = max(inches, columns * width)
        columns = min(
            n for n in range(1, columns + 1) if _rows(blocks, n) == _rows(blocks, columns)
        )
        rows = [min(columns, n - i) for n in blocks for i in range(0, n, columns)]
        tall = sum(heights) * len(rows)
        if tall > _MAX_HEIGHT:
            raise ResultsError(
                f"this figure would be {tall:.0f} inches tall, and no PDF is more than "
                f"{_MAX_HEIGHT:g}",
                hint="choose what it shows with --where, or take a larger --width",
            )
        self.panel = inches / columns - _AXIS
        figure, made = plt.subplots(
            len(heights) * len(rows), columns, squeeze=False, layout="constrained",
            figsize=(inches, tall + 1), height_ratios=heights * len(rows), **shared,
        )  # fmt: skip
        axes: list[list[Axes]] = [[] for _ in heights]
        for i, row in enumerate(made):
            number, place = divmod(i, len(heights))
            beneath = rows[number + 1] if number + 1 < len(rows) else 0
            for column, ax in enumerate(row):
                if column >= rows[number]:
                    figure.delaxes(ax)
                    continue
                axes[place].append(ax)
                if column >= beneath:  # where the rows beneath are shorter it has the numbers
                    ax.tick_params(labelbottom=True)
            self._heights.append((row[0], heights[place]))
        return axes

    def name_axes(self, axes: Sequence[Axes], x: str, y: str) -> None:
        """Name the two axes: once for the whole figure, or on the caller's axes. What is under a
        name of ``x``, on a further line, is a note."""
        figure = _figure_of(axes[0])
        wide, tall = map(float, figure.get_size_inches())
        if self.ax is not None:
            place = self.ax.get_position()
            wide, tall = place.width * wide, place.height * tall
        else:
            tall = sum(height for _, height in self._heights)
        x = "\n".join(fitted(line, within(wide - 0.2), 3) for line in x.split("\n"))
        y = fitted(no_snake_case(y), within(tall), 3)
        if self.ax is not None or len(axes) == 1:
            axes[0].set(xlabel=x, ylabel=y)
            return
        figure.supxlabel(x, fontsize="medium")
        if y:
            figure.supylabel(y, fontsize="medium")

    def title(self, ax: Axes, text: str, **options: Any) -> None:
        """The title of a panel, on as many as three lines, without snake case."""
        # Constrained layout leaves a panel a little less than it was asked for.
        fits, text = within(self.panel - 0.06, "small"), no_snake_case(text)
        text = text if fits(text) else text.replace(" · ", "\n", 1)
        lines = (fitted(line, fits, 3) for line in text.split("\n"))
        ax.set_title("\n".join(lines), **{"fontsize": "small", "color": faint(), **options})

    def legend(self, axes: Sequence[Axes], handles: Sequence[Artist]) -> None:
        """One legend for all panels: beneath them, or above where the name of their axes is."""
        if not handles:
            return
        figure = _figure_of(axes[0])
        if self.ax is None:
            place = "upper" if figure.get_supxlabel() else "lower"
            options = _entries(handles, float(figure.get_size_inches()[0]))
            figure.legend(**{**options, "loc": f"outside {place} center"})
            _heighten(figure, options)
            return
        titles = self.ax.get_title("left") or self.ax.get_title()
        pad = 0.6 + 1.4 * (titles.count("\n") + 1 if titles else 0)
        self.ax.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=pad,
                       **_entries(handles, self.panel))  # fmt: skip

    def legend_beneath(self, ax: Axes, handles: Sequence[Artist]) -> None:
        """A legend of one panel, beneath the numbers of its axis."""
        options = _entries(handles, self.panel)
        ax.legend(loc="upper left", bbox_to_anchor=(0, 0), borderaxespad=2.2, **options)
        if self.ax is None:
            _heighten(_figure_of(ax), options)

    def finish(self) -> None:
        """Make the figure as tall as its panels need beside titles and legend; a slide 16:9."""
        if not self._heights:
            return
        figure = _figure_of(self._heights[0][0])
        figure.draw_without_rendering()
        width, height = map(float, figure.get_size_inches())
        missing = sum(tall - ax.get_position().height * height for ax, tall in self._heights)
        height += missing
        if self.is_slide:
            width = max(width, height * 16 / 9)
            height = width * 9 / 16
        figure.set_size_inches(width, height)


def _entries(handles: Sequence[Artist], inches: float) -> dict[str, Any]:
    """The entries of a legend that is at most so wide, in as many columns as fit."""
    texts = [no_snake_case(str(handle.get_label())) for handle in handles]
    texts = distinct(texts, within(inches - _HANDLE, "small"), 3)
    widths = [inches_of(text, "small") + _HANDLE for text in texts]
    for columns in range(len(texts), 0, -1):
        # As matplotlib divides them: the first columns are one longer.
        if sum(max(column) for column in np.array_split(widths, columns)) <= inches:
            break
    return {"handles": list(handles), "labels": texts, "ncols": columns, "columnspacing": 1.2,
            "handletextpad": 0.5, "handlelength": 1.8}  # fmt: skip


def _heighten(figure: Figure, options: Mapping[str, Any]) -> None:
    """Add the inches that a legend takes, about; ``Page.finish`` corrects them."""
    lines = sum(1 + label.count("\n") for label in options["labels"]) / options["ncols"]
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.17 * (lines + 1))


def name_once(axes: Sequence[Axes]) -> None:
    """Names of axes once in a row, where they are the same, and once in a column."""
    specs = [ax.get_subplotspec() for ax in axes]
    places = [(spec.rowspan.start, spec.colspan.start) for spec in specs if spec is not None]
    names = [ax.get_ylabel() for ax in axes]
    for ax, (row, column), name in zip(axes, places, names, strict=False):
        left = [n for n, (r, c) in zip(names, places, strict=True) if r == row and c < column]
        if left and left[-1] == name:
            ax.set_ylabel("")
        if any(r > row and c == column for r, c in places):
            ax.set_xlabel("")


def _rows(blocks: Sequence[int], columns: int) -> int:
    return sum(-(-count // columns) for count in blocks)


def _figure_of(ax: Axes) -> Figure:
    figure = ax.get_figure(root=True)
    assert isinstance(figure, Figure)
    return figure


@contextmanager
def literal_text() -> Iterator[None]:
    """Text is drawn as it is: names from data may hold ``$``, and are no formulas, which may also
    be wrong ones."""
    with mpl.rc_context({"text.parse_math": False}):
        yield


def take_literally(drawn: Artist, *, every: bool = False) -> None:
    """The same for text that is there by now, or ``every`` text: what the user sets later may be a
    formula."""
    for ax in drawn.findobj(Axes):
        for axis in (ax.xaxis, ax.yaxis):
            axis.get_ticklabels()  # their texts are set when they are asked for
    for text in drawn.findobj(Text):
        text.set_parse_math(not every and "$" not in text.get_text())


@contextmanager
def saving(figure: Figure) -> Iterator[None]:
    """Save ``figure`` in the style that it was drawn in: hatches and fonts are written then."""
    settings: Any = getattr(figure, _SAVED_STYLE, None)
    with Page().context() if settings is None else mpl.rc_context(settings):
        yield


def remember_style(figure: Figure) -> None:
    """Keep the settings in force with ``figure``, for saving it."""
    settings = {name: value for name, value in dict(_RC).items() if name not in _NOT_STYLE}
    setattr(figure, _SAVED_STYLE, settings)


def longer(figure: Figure) -> str:
    """A note on a figure that is taller than a page of print; empty for one that fits."""
    height = float(figure.get_size_inches()[1])
    if height <= _PAGE_HEIGHT:
        return ""
    return (
        f"{height:.0f} inches tall, more than the {_PAGE_HEIGHT:g} of a page: "
        "choose what it shows with --where, or take a larger --width"
    )


@cache
def style_sheet(name: str = "paper") -> dict[str, Any]:
    """The settings of a style sheet of ours: ``paper``, or what ``slide`` has instead."""
    return _file(Path(__file__).with_name(f"{name}.mplstyle"))


def _file(path: Path) -> dict[str, Any]:
    read: Any = mpl.rc_params_from_file
    return dict(read(path, fail_on_error=True, use_default_template=False))


def _read(style: str | Path) -> dict[str, Any]:
    if str(style) in styles.library:
        library: Any = styles.library
        return dict(library[str(style)])
    path = Path(style)
    if not path.is_file():
        raise ResultsError(
            f"no style is called {str(style)!r}, and there is no such file",
            hint=nearest(str(style), styles.available, "a .mplstyle file of matplotlib's settings"),
        )
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ResultsError(f"{path} cannot be read: {reason}") from error
    for number, line in enumerate(lines, 1):
        name = line.partition("#")[0].partition(":")[0].strip()
        if name and name not in _RC:
            raise ResultsError(
                f"{path}, line {number}: matplotlib has no setting {name!r}",
                hint=nearest(name, _RC, "settings: matplotlib.rcParams"),
            )
    try:
        return _file(path)
    except ValueError as error:
        raise ResultsError(f"{path}: {error}") from error
