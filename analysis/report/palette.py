"""Colours and markers of curves on a screen: those of ``drawing.style`` by plotly's names.

They are listed here, since that file imports matplotlib; a test compares the two.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from analysis.figures.drawing.optimizer_styles import style_numbers


@dataclass(frozen=True)
class CurveStyle:
    """``light`` is the colour on white, as in the figures, ``dark`` a lighter one on a dark screen;
    ``marker`` and ``dash`` are plotly's names."""

    light: str
    dark: str
    marker: str
    dash: str


STYLES = (
    CurveStyle("#016297", "#4ba6de", "circle", "solid"),
    CurveStyle("#d55e00", "#f08a3c", "square", "dashdot"),
    CurveStyle("#029e73", "#35c79d", "triangle-up", "dot"),
    CurveStyle("#d48cc6", "#e3a2d6", "diamond", "longdash"),
    CurveStyle("#de8f05", "#f2b84b", "triangle-down", "longdashdot"),
    CurveStyle("#56b4e9", "#a6d9f7", "cross", "dash"),
    CurveStyle("#000000", "#f2f2f2", "x", "8px,3px,2px,3px"),
)


def palette() -> list[dict[str, str]]:
    """All of them as plain values."""
    return [asdict(style) for style in STYLES]


def numbered(texts: list[list[str]]) -> list[list[int]]:
    """The number of each curve's style, by panel: a training algorithm has one style in all panels,
    as long as there are styles for all of them; else each panel is numbered by itself."""
    together = style_numbers(text for panel in texts for text in panel)
    if len(together) > len(STYLES):
        return [[*map(style_numbers(panel).__getitem__, panel)] for panel in texts]
    return [[together[text] for text in panel] for panel in texts]
