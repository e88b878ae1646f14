"""What stands over a panel: its letter and title, and a note under them."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

from matplotlib.axes import Axes
from matplotlib.text import Annotation

from analysis.figures.drawing.colours import faint, ink
from analysis.figures.drawing.page import unit
from analysis.figures.drawing.text_fit import fitted, within
from analysis.figures.paper.panel import Panel

_TITLE, _NOTE = 7.5, 6.0
"""Points."""
_LINES = 3
_SURE = 0.9
"""The part of a panel's width that it has in any place of a row."""
_TEXT, _LINE = 0.26, 0.125
"""Inches of the numbers under a panel, and of a line of its title."""


def _letter(i: int) -> str:
    many = len(ascii_lowercase)
    return (ascii_lowercase[i // many - 1] if i >= many else "") + ascii_lowercase[i % many]


def heads(panels: Sequence[Panel], across: float) -> list[tuple[list[str], list[str]]]:
    """The lines of each panel's title and of its note, ``across`` inches of the style sheet's type
    wide."""
    begins = [f"({_letter(i)}) " if len(panels) > 1 else "" for i in range(len(panels))]
    texts = [begin + panel.title for begin, panel in zip(begins, panels, strict=True)]
    room = _SURE * across * unit()
    titles = [fitted(text, within(room, _TITLE * unit()), lines=_LINES) for text in texts]
    notes = [fitted(panel.note, within(room, _NOTE * unit()), lines=_LINES) for panel in panels]
    return [
        (title.split("\n"), note.split("\n") if note else [])
        for title, note in zip(titles, notes, strict=True)
    ]


def room(found: Sequence[tuple[list[str], list[str]]]) -> float:
    """Inches that titles and the numbers of the axes take, a row of panels."""
    return _TEXT + _LINE * (max(len(a) for a, _ in found) + max(len(b) for _, b in found))


def title(
    ax: Axes, head: tuple[list[str], list[str]], notes: int, lift: float = 0.0
) -> Annotation | None:
    """The title and, under it, the note, ``lift`` points over their usual place."""
    words, note = head
    pad = (4 + 8 * notes + (3 if notes else 0)) * unit() + lift
    ax.set_title("\n".join(words), color=ink(), fontsize=_TITLE * unit(), pad=pad)
    # Notes hang from the title, so that those of one line stand beside each other's first.
    if not note:
        return None
    return ax.annotate(
        "\n".join(note),
        (0, 1),
        xytext=(0, pad - 3.5 * unit()),
        xycoords="axes fraction",
        va="top",
        textcoords="offset points",
        fontsize=_NOTE * unit(),
        color=faint(),
        annotation_clip=False,
    )
