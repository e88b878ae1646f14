"""What stands over a panel: its letter and title, and a note under them."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.text import Annotation

from analysis.figures.colours import faint, ink
from analysis.figures.page import unit
from analysis.figures.shallue.panel import Panel

_TEXT, _LINE = 0.26, 0.125
"""Inches of the numbers under a panel, and of a line of its title."""


def _letter(i: int) -> str:
    many = len(ascii_lowercase)
    return (ascii_lowercase[i // many - 1] if i >= many else "") + ascii_lowercase[i % many]


def heads(panels: Sequence[Panel], letters: tuple[int, int]) -> list[tuple[list[str], list[str]]]:
    """The lines of each panel's title and of its note."""
    begins = [f"({_letter(i)}) " if len(panels) > 1 else "" for i in range(len(panels))]
    return [
        (wrap(begin + panel.title, letters[0]), wrap(panel.note, letters[1]))
        for begin, panel in zip(begins, panels, strict=True)
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
    ax.set_title("\n".join(words), color=ink(), fontsize=7.5 * unit(), pad=pad)
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
        fontsize=6 * unit(),
        color=faint(),
        annotation_clip=False,
    )
