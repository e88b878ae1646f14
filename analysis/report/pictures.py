"""A panel's chart as a picture, for the page before its script has run, or without scripts.

plotly.js takes seconds on a slow machine, so the same curves are displayed at once, drawn by ``plot
steps``. They are PNGs of 256 colours: a browser lays each SVG out as a page of its own, and ten of
them take it longer than all the rest of a page.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

from analysis.report.panels import View

MOST_DRAWN = 12
"""Number of curves of a panel that are displayed at first; the others can be switched on."""

_DPI = 200
"""1,400 pixels across, for some thousand of a wide screen's."""


def picture(view: View, style_numbers: Sequence[int]) -> str:
    """The first curves of ``view`` as the address of a PNG, each in the style of its number."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from PIL import Image

    from analysis.figures import steps
    from analysis.figures.drawing.facets import curve_names
    from analysis.figures.drawing.page import Page, literal_text
    from analysis.figures.drawing.style import curve_style

    pixels = io.BytesIO()
    # The page's style, not the user's settings: the picture is replaced by the page's chart.
    with plt.ioff(), mpl.rc_context():
        mpl.rcdefaults()
        page = Page.of("two-columns")
        with page.context(), literal_text():
            pairs = view.pairs[:MOST_DRAWN]
            styles = dict(zip(curve_names(pairs), map(curve_style, style_numbers), strict=False))
            axes = steps.draw_panels([pairs], styles, page)
            page.finish()
            figure: Any = axes.get_figure(root=True)
            figure.draw_without_rendering()
            figure.set_layout_engine(None)  # it is laid out already, and drawn once
            figure.savefig(pixels, transparent=True, dpi=_DPI, format="rgba")
            width = int(figure.get_figwidth() * _DPI)
            plt.close(figure)
    size = width, len(pixels.getbuffer()) // (4 * width)
    small = io.BytesIO()
    # The last tenth of the size would take five times as long.
    image = Image.frombytes("RGBA", size, pixels.getvalue()).quantize(256)
    image.save(small, "png", compress_level=6)
    return "data:image/png;base64," + base64.b64encode(small.getvalue()).decode()
