"""Ink and greys on the ground that a style has: dark paper gets light ones.

What the sheet's white paper and dark ink are is what the style says (``axes.facecolor`` and
``text.color``); a grey between the two keeps its place between them. On the sheet's own they are
what they are named.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.typing import ColorType

INK = "#333333"
FAINT = "#8a8a8a"
_PAPER = 255
_READ = 3.0
"""The least contrast of what is read (WCAG 2.1, 1.4.11); of faint words on the sheet it is 3.4."""
_STRONG = 6.0
"""The contrast of a colour that is as plain on dark paper as the sheet's blue is on white."""
_GRID = "#e6e6e6"


def ground() -> str:
    """What axes are drawn on; the page, where they have none."""
    held = mpl.rcParams["axes.facecolor"]
    if str(held) == "none":
        held = mpl.rcParams["figure.facecolor"]
    found = "#ffffff" if str(held) == "none" else to_hex(held)
    return "white" if found == "#ffffff" else found


def ink() -> str:
    """Of words, and of lines that are nobody's."""
    return to_hex(mpl.rcParams["text.color"])


def faint() -> str:
    """Of notes and of marks in a legend; as strong as reading takes on this ground and page."""
    page = [ground(), *(str(c) for c in [mpl.rcParams["figure.facecolor"]] if str(c) != "none")]
    share = _share(FAINT)
    while share < 1 and min(contrast(_mixed(share, FAINT), one) for one in page) < _READ + 0.2:
        share += 0.05
    return _mixed(min(share, 1.0), FAINT)


def grey(usual: str) -> str:
    """``usual``, a grey of the sheet: as far on the way from the ground to the ink as there."""
    return _mixed(_share(usual), usual)


def grid_colour() -> str:
    """The style's own, unless it is as strong as what is drawn over it."""
    held = str(mpl.rcParams["grid.color"])
    known = to_hex(held) if not held.startswith("(") else _GRID
    return grey(_GRID) if known in (_GRID, "#b0b0b0") or contrast(known, ground()) > 2 else known


def dark() -> bool:
    """Whether the ground is darker than what is written on it."""
    return luminance(ground()) < luminance(ink())


def tint(colour: str, share: float) -> tuple[float, float, float]:
    """``colour`` on the ground, opaque: transparency does not survive every printer."""
    under = to_rgb(ground())
    red, green, blue = (
        base - share * (base - part) for base, part in zip(under, to_rgb(colour), strict=True)
    )
    return red, green, blue


def seen(colour: str) -> str:
    """``colour`` of the sheet, made for white paper, lighter where the ground is dark."""
    if not dark():
        return colour
    own, over = np.array(to_rgb(colour)), np.array(to_rgb(ink()))
    for share in np.linspace(0, 0.6, 13):
        found = to_hex(tuple(own + share * (over - own)))
        if contrast(found, ground()) >= _STRONG:
            break
    return found


def luminance(colour: ColorType) -> float:
    """Relative luminance, 0 to 1 (WCAG 2.1)."""
    parts = np.array(to_rgb(to_hex(colour)), dtype=float)
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: ColorType, other: ColorType) -> float:
    """The ratio of two colours' luminances, from 1 to 21 (WCAG 2.1)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _share(usual: str) -> float:
    """How far a grey is on the way from white paper to the sheet's ink."""
    return (_PAPER - int(usual[1:3], 16)) / (_PAPER - int(INK[1:3], 16))


def _mixed(share: float, usual: str) -> str:
    if ground() == "white" and ink() == INK and share == _share(usual):
        return usual
    under, over = np.array(to_rgb(ground())), np.array(to_rgb(ink()))
    return to_hex(tuple(under + share * (over - under)))
