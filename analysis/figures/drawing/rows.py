"""Figures of named rows, some of which are headings: forest plots."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from analysis.figures.drawing.colours import ink
from analysis.figures.drawing.page import TWO_COLUMNS, Page
from analysis.figures.drawing.text_fit import distinct, fitted, no_snake_case, within

_ROW, _LINE = 0.185, 0.1
"""Inches of a row, and of a second line of its name."""
_NAMES = 0.33
"""The part of the figure's width that the names of rows may take."""


def name_rows(
    page: Page, rows: Sequence[tuple[str, bool]], columns: int, need: float = TWO_COLUMNS
) -> list[Axes]:
    """Panels beside each other over these rows, the last of them at height 0: of each its name,
    and whether it is a heading, which stands in the row itself."""
    width = page.inches or need
    fits = within(_NAMES * width)
    names = distinct([no_snake_case(text) for text, heading in rows if not heading], fits, 2)
    tall = _ROW + _LINE * any("\n" in name for name in names)
    (axes,) = page.panels(
        [columns], "panel", min(need, width) / columns, tall * (len(rows) + 0.3), sharey=True,
        across=columns,
    )  # fmt: skip
    heights = range(len(rows))[::-1]
    first = axes[0]
    first.set_ylim(-0.65, len(rows) - 0.35)
    places = [height for height, (_, heading) in zip(heights, rows, strict=True) if not heading]
    first.set_yticks(places, names)
    for ax in axes:
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    edge = "axes fraction" if page.ax is not None else "figure fraction"
    for height, (text, heading) in zip(heights, rows, strict=True):
        if heading:  # from the page's edge on: no name is beside it
            short = fitted(no_snake_case(text), within(0.85 * width / columns, "small"))
            first.annotate(
                short, (0.01, height - 0.08), xycoords=(edge, "data"), zorder=6, va="center",
                fontsize="small", fontweight="bold", color=ink(), annotation_clip=False,
            ).set_in_layout(False)  # fmt: skip
    return axes
