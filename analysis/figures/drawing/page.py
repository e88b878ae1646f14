"""The page that a figure is drawn for: its width, the size of its type, and its style.

All sizes follow from three of matplotlib's settings, ``font.size``, ``lines.linewidth`` and
``lines.markersize``, as the style sheet ``batchscale.mplstyle`` has them: a slide multiplies them,
and so may a user. Figures are laid out in inches at the type of that style sheet (``unit`` is how
many times larger the type in force is), so that larger type gets fewer panels in a row.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import style as styles
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from results.errors import ResultsError, nearest

_RC: Any = mpl.rcParams
_DEFAULT: Any = mpl.rcParamsDefault
_read_file: Any = mpl.rc_params_from_file

COLUMN = 3.4
"""Inches of a column of print."""
TWO_COLUMNS = 7.0
STYLE_SHEET = Path(__file__).with_name("batchscale.mplstyle")

_WIDTHS = {"column": (COLUMN, 1.0), "two-columns": (TWO_COLUMNS, 1.0), "slide": (10.0, 1.8)}
"""Inches, and how many times larger type, lines and marks are: 14 points on a slide."""
_LEAST, _MOST = 2.5, 24.0
_PAGE_HEIGHT = 9.7
"""Inches of A4 between its margins."""
_MAX_HEIGHT = 200.0
"""Inches: 14,400 points, the limit of PDF; a PNG of 300 dots an inch has one at 218."""
_SCALED = (
    "font.size", "lines.linewidth", "lines.markersize", "axes.linewidth", "grid.linewidth",
    "patch.linewidth", "hatch.linewidth", "axes.titlepad", "axes.labelpad",
    *(f"{axis}tick.{kind}.{part}" for axis in "xy" for kind in ("major", "minor")
      for part in ("width", "size", "pad")),
)  # fmt: skip
_FONT, _LINE, _MARKER = 8.0, 1.2, 4.0
"""Sizes of the style sheet: sizes in the figures' files are relative to these."""
_NOT_STYLE = ("backend", "backend_fallback", "interactive", "toolbar")
_SAVED_STYLE = "_batchscale_style"
"""The attribute of a figure that holds the settings it was drawn with."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """``inches`` wide, None for the width that a figure needs; ``style`` overrides our style
    sheet."""

    inches: float | None = None
    scale: float = 1.0
    style: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, width: str | float | None = None, style: str | Path | None = None) -> Page:
        """The page of a ``width`` (``column``, ``two-columns``, ``slide`` or inches) and a
        ``style``: a style sheet's file, or the name of one of matplotlib's.

        Raises:
            ResultsError: no such width or style, or a setting that matplotlib does not know.
        """
        settings = {} if style is None else _read(style)
        settings = {name: each for name, each in settings.items() if name not in _NOT_STYLE}
        if width is None:
            return cls(style=settings)
        if width in _WIDTHS:
            inches, scale = _WIDTHS[str(width)]
            return cls(inches=inches, scale=scale, style=settings)
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
        return cls(inches=inches, style=settings)

    @contextmanager
    def context(self) -> Iterator[None]:
        """Draw in the style of this page; the user's own settings come back after.

        Our style sheet gives those settings that the user has not set, which are matplotlib's own
        defaults or the style sheet's. The style of this page overrides both.
        """
        ours = {name: _DEFAULT[name] for name in _SCALED if self.scale != 1} | style_sheet()
        free = {name: value for name, value in ours.items() if _RC[name] in (_DEFAULT[name], value)}
        larger = {name: free[name] * self.scale for name in _SCALED if name in free}
        settings: Any = {**free, **larger, **self.style}
        with mpl.rc_context(settings):
            yield

    def width(self, need: float = COLUMN) -> float:
        """Inches of a new figure: those of this page, else one column, or two for a figure that
        needs more. ``need`` is in inches at the type of the style sheet."""
        if self.inches is not None:
            return self.inches
        return COLUMN if need * unit() <= COLUMN * 1.02 else TWO_COLUMNS

    def size(self, need: float, height: float) -> tuple[float, float]:
        """Inches of a new figure: ``figsize``. ``need`` and ``height`` are inches at the type of
        the style sheet.

        Raises:
            ResultsError: taller than the tallest page that a PDF may have.
        """
        inches = height * unit()
        if inches > _MAX_HEIGHT:
            raise ResultsError(
                f"this figure would be {inches:.0f} inches tall, and no PDF is more than "
                f"{_MAX_HEIGHT:g}",
                hint="choose what it shows with --where, or take a larger --width",
            )
        return self.width(need), inches

    def usable(self, need: float = COLUMN) -> float:
        """The same in inches at the type of the style sheet: fewer where type is larger."""
        return self.width(need) / unit()


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


def unit() -> float:
    """How many times larger type is than the style sheet's."""
    return float(_RC["font.size"]) / _FONT


def stroke(points: float) -> float:
    """A line's width; ``points`` where the style sheet's usual 1.2 are in force."""
    return points * float(_RC["lines.linewidth"]) / _LINE


def mark(points: float) -> float:
    """A marker's size; ``points`` where the style sheet's usual 4 are in force."""
    return points * float(_RC["lines.markersize"]) / _MARKER


def scaled(options: Mapping[str, Any]) -> dict[str, Any]:
    """An artist's options with their sizes as the settings in force have them."""
    by = {"linewidth": stroke, "markeredgewidth": stroke, "markersize": mark}
    return {name: by[name](value) if name in by else value for name, value in options.items()}


@cache
def style_sheet() -> dict[str, Any]:
    """The settings of our style sheet."""
    return dict(_read_file(STYLE_SHEET, use_default_template=False))


def _read(style: str | Path) -> dict[str, Any]:
    if str(style) in styles.library:
        library: Any = styles.library
        return dict(library[str(style)])
    path = Path(style)
    if not os.path.isfile(path):
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
        return dict(_read_file(path, fail_on_error=True, use_default_template=False))
    except ValueError as error:
        raise ResultsError(f"{path}: {error}") from error
