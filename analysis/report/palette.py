"""Colours and markers of curves on a screen: those of the figures by plotly's names."""

from __future__ import annotations

from analysis.figures.drawing.optimizer_styles import STYLES, style_numbers


def palette() -> list[dict[str, str]]:
    """All of them: the colour on white and on a dark screen, marker and dashes."""
    return [
        {"light": style.colour, "dark": style.dark, "marker": style.symbol, "dash": style.dash}
        for style in STYLES
    ]


def numbered(texts: list[list[str]]) -> list[list[int]]:
    """The number of each curve's style, by panel: a training algorithm has one style in all panels,
    as long as there are styles for all of them; else each panel is numbered by itself."""
    together = style_numbers(text for panel in texts for text in panel)
    if len(together) > len(STYLES):
        return [[*map(style_numbers(panel).__getitem__, panel)] for panel in texts]
    return [[together[text] for text in panel] for panel in texts]
