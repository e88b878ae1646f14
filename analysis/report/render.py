"""The templates, filled in. Every text is escaped by jinja2; scripts and styles come from files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.counts import agreeing, count

if TYPE_CHECKING:
    from jinja2 import Environment

FILES = Path(__file__).parent / "files"
SCRIPTS = ("base", "steps", "search", "controls", "tables", "live", "main")
"""The parts of the page's own script, in order; they share one scope."""


def contents(payload: dict[str, Any]) -> str:
    """The texts and tables of the page as HTML, with places for its charts."""
    return _templates().get_template("contents.html.j2").render(page=payload)


def whole(payload: dict[str, Any] | None, **more: Any) -> str:
    """The page: ``contents`` and everything that it needs."""
    return _templates().get_template("page.html.j2").render(page=payload, **more)


@cache
def style() -> str:
    """The style sheet."""
    return _read("style.css") + _read("print.css")


@cache
def script() -> str:
    """The page's own script, in a scope of its own."""
    parts = [_read(f"{name}.js") for name in SCRIPTS]
    return "\n".join(['(function () {\n"use strict";', *parts, "})();"])


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
    templates.globals |= {"count": count, "agreeing": agreeing}
    return templates


def _read(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")
