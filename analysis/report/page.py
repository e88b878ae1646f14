"""The payload as one self-contained HTML file, which requests nothing from any network.

Every text is escaped by jinja2; scripts and styles come from files.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.counts import agreeing, count

if TYPE_CHECKING:
    from jinja2 import Environment

FILES = Path(__file__).parent / "files"
SCRIPTS = ("base", "steps", "search", "controls", "tables", "live", "main")
"""The parts of the page's own script, in order; they share one scope."""
MOST_FINDINGS = 5
"""Findings of a workload that stand under its chart; the others are folded."""
_RENDERED = ("html", "pictures")
"""Parts of the payload that are in the page's texts already."""


def page(payload: dict[str, Any] | None, *, live: str | None = None) -> str:
    """One HTML file: texts and tables, the data, plotly.js and a script that draws.

    Without JavaScript all of the text is there, and a picture of each curve if the payload has it.

    Args:
        payload: of ``analysis.report.payload``; None while a page that is ``live`` has none yet.
        live: an address that the page requests every 5 s (with If-None-Match) for
            ``{"payload": …, "status": …}``, to draw itself anew and to show how far a sweep is.
    """
    data = None
    if payload is not None:
        data = {name: value for name, value in payload.items() if name not in _RENDERED}
    template = _templates().get_template("page.html.j2")
    return template.render(
        page=payload,
        live=live,
        style=_read("style.css") + _read("print.css"),
        plotly=plotly(),
        script=script(),
        scripts=script_sources(),
        data=embedded(data),
        address=embedded(live),
    )


def contents(payload: dict[str, Any]) -> str:
    """The texts and tables of the page as HTML, with places for its charts."""
    return _templates().get_template("contents.html.j2").render(page=payload)


def embedded(value: Any) -> str:
    """JSON that may stand between script tags: nothing in it ends them or begins a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def script() -> str:
    """The page's own script, in a scope of its own."""
    parts = [_read(f"{name}.js") for name in SCRIPTS]
    return "\n".join(['(function () {\n"use strict";', *parts, "})();"])


@cache
def script_sources() -> str:
    """What a Content-Security-Policy allows as ``script-src``: the page's script and plotly.js by
    their SHA-256 (CSP level 3, 8.2), and nothing else, whatever gets into a text of the page."""
    digests = (hashlib.sha256(text.encode()).digest() for text in (script(), plotly()))
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


@cache
def plotly() -> str:
    """plotly.js, from the plotly package."""
    from plotly.offline import get_plotlyjs

    text: str = get_plotlyjs()
    return text


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(FILES, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    named = {"count": count, "agreeing": agreeing, "most_findings": MOST_FINDINGS}
    templates.globals |= named
    return templates


@cache
def _read(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")
