"""Ink and greys on the background that a style has: a dark background gets light ones.

The white paper and the dark ink of our style content become what the style in force says
(``axes.facecolor`` and ``text.color``); a grey between the two keeps its place between them. In our
own style content each colour is exactly what it is named.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.typing import ColorType

INK = "#333333"
FAINT = "#8a8a8a"
_PAPER = 255
_READABLE = 3.0
"""The least contrast of text (WCAG 2.1, 1.4.11); of faint text in our style content it is 3.4."""
_STRONG = 6.0
"""The contrast of a colour that is as plain on dark paper as our blue is on white."""
_GRID = "#e6e6e6"


def ground() -> str:
    """The background of axes; the figure's, where they have none."""
    colour = mpl.rcParams["axes.facecolor"]
    if str(colour) == "none":
        colour = mpl.rcParams["figure.facecolor"]
    background = "#ffffff" if str(colour) == "none" else to_hex(colour)
    return "white" if background == "#ffffff" else background


def ink() -> str:
    """The colour of text, and of lines that belong to no curve."""
    return to_hex(mpl.rcParams["text.color"])


def faint() -> str:
    """The colour of notes and of marks in a legend; as strong as reading needs on axes and page."""
    page = str(mpl.rcParams["figure.facecolor"])
    backgrounds = [ground(), *([page] if page != "none" else [])]
    share = _share(FAINT)
    while (
        share < 1 and min(contrast(_mixed(share, FAINT), b) for b in backgrounds) < _READABLE + 0.2
    ):
        share += 0.05
    return _mixed(min(share, 1.0), FAINT)


def grey(usual: str) -> str:
    """``usual``, a grey for white paper: at the same place between this background and ink."""
    return _mixed(_share(usual), usual)


def grid_colour() -> str:
    """The style's grid colour, unless it is as strong as what is drawn over it."""
    setting = str(mpl.rcParams["grid.color"])
    colour = to_hex(setting) if not setting.startswith("(") else _GRID
    usual = colour in (_GRID, "#b0b0b0")
    return grey(_GRID) if usual or contrast(colour, ground()) > 2 else colour


def dark() -> bool:
    """Whether the background is darker than the text on it."""
    return luminance(ground()) < luminance(ink())


def tint(colour: str, share: float) -> tuple[float, float, float]:
    """``colour`` mixed into the background, opaque: not every printer keeps transparency."""
    red, green, blue = (
        base - share * (base - part)
        for base, part in zip(to_rgb(ground()), to_rgb(colour), strict=True)
    )
    return red, green, blue


def visible(colour: str) -> str:
    """``colour``, made for white paper; lighter where the background is dark."""
    if not dark():
        return colour
    base, text = np.array(to_rgb(colour)), np.array(to_rgb(ink()))
    for share in np.linspace(0, 0.6, 13):
        lighter = to_hex(tuple(base + share * (text - base)))
        if contrast(lighter, ground()) >= _STRONG:
            break
    return lighter


def luminance(colour: ColorType) -> float:
    """Relative luminance, 0 to 1 (WCAG 2.1)."""
    parts = np.array(to_rgb(to_hex(colour)), dtype=float)
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(first: ColorType, second: ColorType) -> float:
    """The ratio of two colours' luminances, from 1 to 21 (WCAG 2.1)."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _share(usual: str) -> float:
    """Where a grey is between white paper (0) and the ink of our style content (1)."""
    return (_PAPER - int(usual[1:3], 16)) / (_PAPER - int(INK[1:3], 16))


def _mixed(share: float, usual: str) -> str:
    if ground() == "white" and ink() == INK and share == _share(usual):
        return usual
    under, over = np.array(to_rgb(ground())), np.array(to_rgb(ink()))
    return to_hex(tuple(under + share * (over - under)))
