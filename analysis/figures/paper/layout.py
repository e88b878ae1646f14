"""How many panels stand in a row, on the page that was asked for.

Inches are of the style sheet's type (``drawing.page``): larger type has fewer of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from analysis.figures.drawing.page import COLUMN, TWO_COLUMNS, room
from analysis.figures.paper.panel import Panel

_LEAST = 1.6
"""Inches of a panel across, its numbers among them."""
_AXIS = 0.45
"""Inches of the numbers beside a panel."""


def across(panels: Sequence[Panel]) -> int:
    """Panels in a row: as the rows mean, else three or what leaves no place empty; never more
    than there is room for."""
    count = len(panels)
    most = max(1, int(room(TWO_COLUMNS if count > 1 else COLUMN) / _LEAST))
    rows = [panel.wide for panel in panels]
    if len(set(rows)) > 1:
        return min(most, max(rows.count(row) for row in rows))
    if count <= 3:
        return min(most, count)
    wanted = 2 if count == 4 else 4 if count % 4 == 0 and count % 3 else 3
    return min(most, wanted)


def places(panels: Sequence[Panel], n: int) -> list[tuple[int, int]]:
    """The row and column of each panel; each ``wide`` begins a row."""
    found: list[tuple[int, int]] = []
    row, column = 0, 0
    ordered = sorted(range(len(panels)), key=lambda i: panels[i].wide)
    for place, i in enumerate(ordered):
        begins = place and panels[i].wide != panels[ordered[place - 1]].wide
        if column == n or begins:
            row, column = row + 1, 0
        found.append((row, column))
        column += 1
    back = {i: found[place] for place, i in enumerate(ordered)}
    return [back[i] for i in range(len(panels))]


def need(n: int) -> float:
    """Inches that ``n`` panels in a row want."""
    return COLUMN if n == 1 else TWO_COLUMNS


def panel_width(n: int) -> float:
    """Inches between the ends of a panel's axes, ``n`` in a row, about."""
    return room(need(n)) / n - _AXIS
