"""The payload as one self-contained HTML file, which asks nothing of any network."""

from __future__ import annotations

import json
from typing import Any

from analysis.report import render

_RENDERED = ("html", "pictures")
"""What is in the page's texts already."""


def page(payload: dict[str, Any] | None, *, live: str | None = None) -> str:
    """One HTML file: texts and tables, the data, plotly.js and a script that draws.

    Without JavaScript all of the text is there, and a picture of each curve if the payload has it.

    Args:
        payload: of ``analysis.report.payload``; None while a page that is ``live`` has none yet.
        live: an address that the page asks every 5 s (with If-None-Match) for
            ``{"payload": …, "status": …}``, to draw itself anew and to show how a sweep goes.
    """
    drawn = None
    if payload is not None:
        drawn = {name: value for name, value in payload.items() if name not in _RENDERED}
    return render.whole(
        payload,
        live=live,
        style=render.style(),
        plotly=render.plotly(),
        script=render.script(),
        data=embedded(drawn),
        address=embedded(live),
    )


def embedded(value: Any) -> str:
    """JSON that may stand between script tags: nothing in it ends them or begins a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
