"""Colours and markers of curves on a screen: those of ``drawing.style`` in plotly's words.

They are written out, as that file imports matplotlib; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Look:
    """``light`` is the colour on white, as the figures have it, ``dark`` its lighter kin
    on a dark screen; ``marker`` and ``dash`` are plotly's names."""

    light: str
    dark: str
    marker: str
    dash: str


LOOKS = (
    Look("#016297", "#4ba6de", "circle", "solid"),
    Look("#d55e00", "#f08a3c", "square", "dashdot"),
    Look("#029e73", "#35c79d", "triangle-up", "dot"),
    Look("#d48cc6", "#e3a2d6", "diamond", "longdash"),
    Look("#de8f05", "#f2b84b", "triangle-down", "longdashdot"),
    Look("#56b4e9", "#a6d9f7", "cross", "dash"),
    Look("#000000", "#f2f2f2", "x", "8px,3px,2px,3px"),
)


def palette() -> list[dict[str, str]]:
    """All of them as plain values."""
    return [asdict(look) for look in LOOKS]


def numbered(texts: list[list[str]]) -> list[list[int]]:
    """A look for each curve of each panel: a training algorithm looks alike in every panel, as long
    as there are looks for all of them; else each panel begins anew."""
    order = list(dict.fromkeys(text for panel in texts for text in panel))
    if len(order) <= len(LOOKS):
        return [[order.index(text) for text in panel] for panel in texts]
    return [list(range(len(panel))) for panel in texts]
