"""The page that a figure is for: its width, the size of its type, and whose settings win.

All sizes follow from three of matplotlib's settings, ``font.size``, ``lines.linewidth`` and
``lines.markersize``, as the style sheet ``batchscale.mplstyle`` has them: a slide multiplies them,
and so may a user. Figures ask for inches of their type (``unit``), not for inches of paper, so
that larger type gets fewer panels across.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import matplotlib as mpl
from matplotlib import style as styles
from matplotlib.figure import Figure

from results.errors import ResultsError, nearest

_RC: Any = mpl.rcParams
_DEFAULT: Any = mpl.rcParamsDefault
_read_file: Any = mpl.rc_params_from_file

COLUMN = 3.4
"""Inches of a column of print."""
TWO_COLUMNS = 7.0
SHEET = Path(__file__).with_name("batchscale.mplstyle")

_WIDTHS = {"column": (COLUMN, 1.0), "two-columns": (TWO_COLUMNS, 1.0), "slide": (10.0, 1.8)}
"""Inches, and how many times larger type, lines and marks are: 14 points on a slide."""
_LEAST, _MOST = 2.5, 24.0
_PAGE_TALL = 9.7
"""Inches of A4 between its margins."""
_TALLEST = 200.0
"""Inches: 14,400 points, the limit of PDF; a PNG of 300 dots an inch has one at 218."""
_SCALED = (
    "font.size", "lines.linewidth", "lines.markersize", "axes.linewidth", "grid.linewidth",
    "patch.linewidth", "hatch.linewidth", "axes.titlepad", "axes.labelpad",
    *(f"{axis}tick.{kind}.{part}" for axis in "xy" for kind in ("major", "minor")
      for part in ("width", "size", "pad")),
)  # fmt: skip
_FONT, _LINE, _MARKER = 8.0, 1.2, 4.0
"""What the sheet says: sizes in the figures' files are meant beside these."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """``width`` in inches, None for what a figure needs; ``style`` wins over the sheet."""

    width: float | None = None
    scale: float = 1.0
    style: Mapping[str, Any] = field(default_factory=dict)


def page(width: str | float | None = None, style: str | Path | None = None) -> Page:
    """The page of a ``width`` (``column``, ``two-columns``, ``slide`` or inches) and a ``style``:
    a style sheet's file, or the name of one of matplotlib's.

    Raises:
        ResultsError: no such width or style, or a setting that matplotlib does not know.
    """
    given = _style(style)
    if width is None:
        return Page(style=given)
    if width in _WIDTHS:
        wide, scale = _WIDTHS[str(width)]
        return Page(width=wide, scale=scale, style=given)
    try:
        wide = float(width)
    except ValueError:
        raise ResultsError(
            f"no width is called {width!r}", hint="column, two-columns, slide, or inches: 5.5"
        ) from None
    if not _LEAST <= wide <= _MOST:
        raise ResultsError(
            f"a figure is not {wide:g} inches wide", hint=f"from {_LEAST:g} to {_MOST:g}"
        )
    return Page(width=wide, style=given)


_PAGE: ContextVar[Page] = ContextVar("page", default=Page())  # noqa: B039 (it is frozen)
_DRAWN: WeakKeyDictionary[Figure, dict[str, Any]] = WeakKeyDictionary()


@contextmanager
def on(one: Page) -> Iterator[None]:
    """Draw figures for that page."""
    before = _PAGE.set(one)
    try:
        yield
    finally:
        _PAGE.reset(before)


@contextmanager
def context(figure: Figure | None = None) -> Iterator[None]:
    """Draw in our style, or save ``figure`` in the style that it was drawn in; the user's own
    settings come back after."""
    known = None if figure is None else _DRAWN.get(figure)
    settings: Any = _settings() if known is None else known
    with mpl.rc_context(settings):
        yield


def remember(figure: Figure) -> None:
    """Keep the style of this context for saving ``figure``: hatches and fonts are written then."""
    _DRAWN[figure] = {name: value for name, value in dict(_RC).items() if name not in _NOT_STYLE}


def width(need: float = COLUMN) -> float:
    """Inches of a new figure: those asked for, else one column, or two for one that needs more.

    ``need`` is in inches of the style sheet's type.
    """
    asked = _PAGE.get().width
    if asked is not None:
        return asked
    return COLUMN if need * unit() <= COLUMN * 1.02 else TWO_COLUMNS


def room(need: float = COLUMN) -> float:
    """The same in inches of the style sheet's type: fewer where type is larger."""
    return width(need) / unit()


def tall(inches: float) -> float:
    """The height of a new figure, if it can be one.

    Raises:
        ResultsError: taller than the tallest page that a PDF may have.
    """
    if inches > _TALLEST:
        raise ResultsError(
            f"this figure would be {inches:.0f} inches tall, and no PDF is more than {_TALLEST:g}",
            hint="choose what it shows with --where, or take a larger --width",
        )
    return inches


def longer(figure: Figure) -> str:
    """What to say of a figure that is taller than a page of print; nothing of one that fits."""
    height = float(figure.get_size_inches()[1])
    if height <= _PAGE_TALL:
        return ""
    return (
        f"{height:.0f} inches tall, more than the {_PAGE_TALL:g} of a page: "
        "choose what it shows with --where, or take a larger --width"
    )


def unit() -> float:
    """How many times larger type is than the style sheet's."""
    return float(_RC["font.size"]) / _FONT


def stroke(points: float) -> float:
    """A line's width beside the sheet's usual 1.2 points."""
    return points * float(_RC["lines.linewidth"]) / _LINE


def mark(points: float) -> float:
    """A marker's size beside the sheet's usual 4 points."""
    return points * float(_RC["lines.markersize"]) / _MARKER


def scaled(options: Mapping[str, Any]) -> dict[str, Any]:
    """An artist's options with their sizes as the page has them."""
    by = {"linewidth": stroke, "markeredgewidth": stroke, "markersize": mark}
    return {name: by[name](value) if name in by else value for name, value in options.items()}


@cache
def sheet() -> dict[str, Any]:
    """The style sheet's settings."""
    return dict(_read_file(SHEET, use_default_template=False))


def own_cycle() -> bool:
    """Whether the user has set the colours of curves."""
    return _RC["axes.prop_cycle"] not in _untouched("axes.prop_cycle")


def _untouched(name: str) -> tuple[Any, ...]:
    return _DEFAULT[name], sheet()[name]


def _settings() -> dict[str, Any]:
    """The sheet's settings that the user has not set: those that are matplotlib's own defaults,
    or the sheet's. Then what was asked for with this page."""
    here = _PAGE.get()
    ours = {name: _DEFAULT[name] for name in _SCALED if here.scale != 1} | sheet()
    free = {name: value for name, value in ours.items() if _RC[name] in (_DEFAULT[name], value)}
    larger = {name: free[name] * here.scale for name in _SCALED if name in free}
    return {**free, **larger, **here.style}


def _style(style: str | Path | None) -> dict[str, Any]:
    given = {} if style is None else _read(style)
    return {name: value for name, value in given.items() if name not in _NOT_STYLE}


_NOT_STYLE = ("backend", "backend_fallback", "interactive", "toolbar")


def _read(style: str | Path) -> dict[str, Any]:
    if str(style) in styles.library:
        library: Any = styles.library
        return dict(library[str(style)])
    path = Path(style)
    if not os.path.isfile(path):
        raise ResultsError(
            f"no style is called {str(style)!r}, and no file",
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
